# A student who reproduces the paper: what there is, one result at trial scale, and the paper's own settings.
evarl reproduce
evarl reproduce tabular --scale smoke --out results
test -f results/tabular/report.html
evarl train navigation --paper --beta 0.05 --updates 120 --out runs/paper --quiet
evarl evaluate runs/paper
