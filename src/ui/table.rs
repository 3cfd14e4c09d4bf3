//! Tables for people: aligned columns, `-` for an empty cell, and no identifier ever cut.

use std::borrow::Cow;
use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, presets};

use crate::model::visible::visible;

/// Rows under a header, printed with two spaces between columns.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A name that begins with `>` makes a column of numbers, aligned to the right.
    pub fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.iter().map(|name| name.trim_start_matches('>')).collect(),
            right: header.iter().map(|name| name.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing and empty cells are shown as `-`.
    pub fn row<I: IntoIterator<Item = T>, T: Into<String>>(&mut self, cells: I) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.header.len(), String::new());
        for cell in &mut row {
            let is_empty = cell.trim().is_empty();
            if is_empty {
                *cell = "-".into();
            } else if cell.contains(['\n', '\r', '\t']) {
                *cell = cell.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            // Before columns are measured: what is written is as wide as what is seen.
            if let Cow::Owned(seen) = visible(cell) {
                *cell = seen;
            }
        }
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Ends with a newline unless there is no row; then nothing is printed, not even the header.
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.header);
        table.add_rows(&self.rows);
        for (column, is_right) in table.column_iter_mut().zip(&self.right) {
            column.set_padding((0, 2));
            if *is_right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_empty_cells_are_dashes() {
        let mut table = Table::new(&["NODE", ">USD/H", "WHY"]);
        assert_eq!(table.to_string(), "");
        table.row(["a-long-name.example.com", "0.096", "two\nlines"]);
        table.row(["b", "", ""]);
        table.row(["ü", "12"]);
        assert_eq!(
            table.to_string(),
            "NODE                     USD/H  WHY\n\
             a-long-name.example.com  0.096  two lines\n\
             b                            -  -\n\
             ü                           12  -\n"
        );
    }
    #[test]
    fn letters_that_cannot_be_seen_do_not_move_columns() {
        let mut table = Table::new(&["NAME", "WHY"]);
        table.row(["a\u{1b}[2J", "x"]);
        table.row(["b", "\u{202e}y"]);
        assert_eq!(table.to_string(), "NAME        WHY\na\\u{1b}[2J  x\nb           \\u{202e}y\n");
    }
}
