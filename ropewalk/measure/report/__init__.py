"""Reports: a table for the terminal, figures, and one page that holds everything."""
