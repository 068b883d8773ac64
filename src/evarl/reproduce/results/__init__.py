"""The paper's eight results, a module for each."""
