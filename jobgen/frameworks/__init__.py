"""One file per framework: everything that only this framework knows."""
