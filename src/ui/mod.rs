//! For people: command line, tables, progress.
