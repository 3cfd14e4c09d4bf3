//! Comma-separated tables with the place of every cell, because a mistake is reported by file, line and column.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::model::near::nearest;
use crate::model::symbol::Symbol;

/// One mistake in a catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}; {help}")]
pub struct TableError {
    pub file: String,
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

#[derive(Clone, Debug)]
struct Cell {
    text: String,
    line: u64,
    column: u64,
}

/// A table whose first row names the columns. Lines that begin with `#` and empty lines are comments.
pub(super) struct Table {
    file: String,
    columns: BTreeMap<String, usize>,
    rows: Vec<Vec<Cell>>,
    misfits: Vec<TableError>,
}

/// One row, and the mistakes found in it so far.
pub(super) struct Row<'t> {
    table: &'t Table,
    cells: &'t [Cell],
    errors: Vec<TableError>,
}

impl Table {
    /// Reads a table that has at least the columns `required`.
    pub(super) fn read(text: &str, file: &str, required: &[&str]) -> Result<Self, Vec<TableError>> {
        let error = |line, column, message: String, help: &str| TableError {
            file: file.into(),
            line,
            column,
            message,
            help: help.into(),
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rows = split(text).map_err(|(line, column)| {
            vec![error(line, column, "a quoted cell does not end".into(), "close it with `\"`")]
        })?;
        if rows.is_empty() {
            let help = format!("the first line names the columns: {}", required.join(","));
            return Err(vec![error(1, 1, "the catalogue is empty".into(), &help)]);
        }
        let header = rows.remove(0);
        let mut errors = Vec::new();
        let mut columns = BTreeMap::new();
        for (at, cell) in header.iter().enumerate() {
            if columns.insert(cell.text.clone(), at).is_some() && required.contains(&cell.text.as_str()) {
                let message = format!("the column `{}` is there twice", cell.text);
                errors.push(error(cell.line, cell.column, message, "remove one"));
            }
        }
        let mut missing = Vec::new();
        for name in required.iter().filter(|name| !columns.contains_key(**name)) {
            let others = columns.keys().map(String::as_str).filter(|present| !required.contains(present));
            let Some(present) = nearest(name, others) else {
                missing.push(format!("`{name}`"));
                continue;
            };
            let cell = &header[columns[present]];
            let help = format!("rename `{present}` to `{name}`");
            errors.push(error(cell.line, cell.column, format!("there is no column `{name}`"), &help));
        }
        if !missing.is_empty() {
            let message = format!("there is no column {}", missing.join(", "));
            let help = format!("the first line names the columns: {}", required.join(","));
            errors.push(error(header[0].line, 1, message, &help));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let (rows, misfits): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.len() == header.len());
        let misfits = misfits.iter().map(|row| {
            let message = format!("the row has {} cells, the header {}", row.len(), header.len());
            error(row[0].line, row[0].column, message, "an empty cell still needs its comma")
        });
        let misfits = misfits.collect();
        Ok(Self { file: file.into(), columns, rows, misfits })
    }

    /// Rows that are none, because their cells are too few or too many.
    pub(super) fn misfits(&self) -> impl Iterator<Item = TableError> + '_ {
        self.misfits.iter().cloned()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells, errors: Vec::new() })
    }
}

impl<'t> Row<'t> {
    fn cell(&self, column: &str) -> &'t Cell {
        &self.cells[self.table.columns[column]]
    }

    pub(super) fn text(&self, column: &str) -> &'t str {
        &self.cell(column).text
    }

    /// Notes a mistake in the cell of `column`.
    pub(super) fn refuse(&mut self, column: &str, message: String, help: &str) {
        let Cell { line, column, .. } = *self.cell(column);
        let file = self.table.file.clone();
        self.errors.push(TableError { file, line, column, message, help: help.into() });
    }

    pub(super) fn required(&mut self, column: &str) -> Option<&'t str> {
        let text = self.text(column);
        if text.is_empty() {
            self.refuse(column, format!("`{column}` is empty"), "every row needs it");
            return None;
        }
        Some(text)
    }

    /// What the cell says; `None` if it is empty, or wrong, which is noted.
    pub(super) fn value<T: FromStr>(&mut self, column: &str, what: &str, example: &str) -> Option<T> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        let value = text.parse().ok();
        if value.is_none() {
            self.refuse(column, format!("`{text}` in `{column}` is not {what}"), &format!("write {example}"));
        }
        value
    }

    pub(super) fn count(&mut self, column: &str) -> Option<u32> {
        self.value(column, "a whole number", "digits only, such as `4`")
    }

    pub(super) fn symbol(&self, column: &str) -> Option<Symbol> {
        let text = self.text(column);
        (!text.is_empty()).then(|| Symbol::new(text))
    }

    pub(super) fn errors(self) -> Vec<TableError> {
        self.errors
    }
}

/// Rows of trimmed cells. A cell in double quotes may hold commas, line ends, and quotes written twice. `Err`: where a quoted
/// cell begins that does not end.
fn split(text: &str) -> Result<Vec<Vec<Cell>>, (u64, u64)> {
    let mut rows = Vec::new();
    let mut row: Vec<Cell> = Vec::new();
    let mut letters = text.chars().peekable();
    let (mut line, mut column) = (1_u64, 1_u64);
    while letters.peek().is_some() {
        // A comment reaches to the end of its line.
        if row.is_empty() && letters.peek() == Some(&'#') {
            letters.by_ref().find(|letter| *letter == '\n');
            line += 1;
            continue;
        }
        let mut cell = Cell { text: String::new(), line, column };
        let mut is_quoted = false;
        let mut was_quoted = false;
        let end = loop {
            let Some(letter) = letters.next() else { break None };
            column += 1;
            match letter {
                '"' if is_quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    column += 1;
                    cell.text.push('"');
                }
                '"' if is_quoted => is_quoted = false,
                '"' if cell.text.trim().is_empty() && !was_quoted => {
                    cell.text.clear();
                    (is_quoted, was_quoted) = (true, true);
                }
                '\n' => {
                    (line, column) = (line + 1, 1);
                    if !is_quoted {
                        break Some('\n');
                    }
                    cell.text.push('\n');
                }
                ',' if !is_quoted => break Some(','),
                letter => cell.text.push(letter),
            }
        };
        if is_quoted {
            return Err((cell.line, cell.column));
        }
        cell.text = cell.text.trim().into();
        row.push(cell);
        if end != Some(',') {
            finish(&mut rows, &mut row);
        } else if letters.peek().is_none() {
            row.push(Cell { text: String::new(), line, column });
        }
    }
    finish(&mut rows, &mut row);
    Ok(rows)
}

fn finish(rows: &mut Vec<Vec<Cell>>, row: &mut Vec<Cell>) {
    let row = std::mem::take(row);
    if row.len() > 1 || row.iter().any(|cell| !cell.text.is_empty()) {
        rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Vec<String>> {
        let rows = split(text).unwrap();
        rows.into_iter().map(|row| row.into_iter().map(|cell| cell.text).collect()).collect()
    }

    #[test]
    fn cells_are_split_as_spreadsheets_write_them() {
        assert_eq!(texts("a,b\r\n# no row\n\n 1 ,\"2,\"\"3\"\"\"\n"), [["a", "b"], ["1", "2,\"3\""]]);
        assert_eq!(texts("a,b\n1,"), [["a", "b"], ["1", ""]]);
        assert_eq!(texts("a"), [["a"]]);
        assert!(texts("").is_empty());
        assert_eq!(split("a,\"b\nc").unwrap_err(), (1, 3));
    }

    #[test]
    fn a_misspelt_column_is_named_with_its_place() {
        let error = Table::read("instance_type,vcpus\nm5.large,2\n", "c.csv", &["instance_type", "vcpu"]);
        let errors = error.err().unwrap();
        assert_eq!(errors[0].to_string(), "c.csv:1:15: there is no column `vcpu`; rename `vcpus` to `vcpu`");
    }

    #[test]
    fn a_header_that_is_none_is_one_mistake() {
        let error = Table::read("a,b\n1,2\n", "c.csv", &["instance_type", "vcpu"]);
        let errors = error.err().unwrap();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].message.contains("`instance_type`, `vcpu`"), "{}", errors[0]);
    }

    #[test]
    fn a_row_with_too_few_cells_hides_no_other() {
        let table = Table::read("a,b\n1\n2,3\n4,5,6\n", "c.csv", &["a", "b"]).ok().unwrap();
        let lines: Vec<u64> = table.misfits().map(|error| error.line).collect();
        assert_eq!(lines, [2, 4]);
        assert_eq!(table.rows().map(|row| row.text("a").to_owned()).collect::<Vec<_>>(), ["2"]);
    }
}
