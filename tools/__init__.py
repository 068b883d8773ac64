"""What makes and checks the documents: the site, the page of the command line, notebooks and pictures."""
