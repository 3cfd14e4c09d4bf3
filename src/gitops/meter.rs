//! What a rendering costs: bytes that it builds, entries that it looks at, bytes that it writes.
//!
//! The engine counts instructions, and one instruction can copy or search a great deal. Whoever makes or searches a value
//! pays for it here first, so that nothing is allocated that is not allowed.

use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use crate::gitops::engine::undefined;
use crate::gitops::read::NESTING_MAX;

/// Bytes of one rendered template.
pub(crate) const OUTPUT_MAX: usize = 1024 * 1024;
/// Bytes that one rendering may build on the way to its output.
pub(crate) const BUILT_MAX: u64 = 4 * 1024 * 1024;
/// Entries and kilobytes of text that one rendering may compare or search: one instruction can look at many.
pub(crate) const LOOKED_MAX: u64 = 2_000_000;
/// Starts the detail of errors about size, to tell them from others.
pub(crate) const TOO_MUCH: &str = "the template builds more than";
pub(crate) const TOO_MUCH_LOOKING: &str = "the template searches and compares more than";

/// What a rendering has cost so far.
#[derive(Default)]
pub(crate) struct Meter {
    /// Bytes built.
    used: AtomicU64,
    /// Entries looked at without being built.
    looked: AtomicU64,
}

impl Meter {
    /// Another rendering begins.
    pub fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
        self.looked.store(0, Ordering::Relaxed);
    }

    pub fn charge(&self, bytes: usize) -> Result<(), Error> {
        let before = self.used.fetch_add(bytes as u64, Ordering::Relaxed);
        match before.saturating_add(bytes as u64) > BUILT_MAX {
            true => Err(too_much()),
            false => Ok(()),
        }
    }

    pub fn look(&self, entries: usize) -> Result<(), Error> {
        let before = self.looked.fetch_add(entries as u64, Ordering::Relaxed);
        match before.saturating_add(entries as u64) > LOOKED_MAX {
            true => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("{TOO_MUCH_LOOKING} {LOOKED_MAX} entries of lists and tables"),
            )),
            false => Ok(()),
        }
    }

    pub fn room(&self) -> usize {
        BUILT_MAX.saturating_sub(self.used.load(Ordering::Relaxed)) as usize
    }
}

pub(crate) fn too_much() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{TOO_MUCH} {BUILT_MAX} bytes of values"))
}

/// The output, marks included.
pub(crate) struct Capped {
    pub text: Vec<u8>,
}

impl std::io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Marks at most double a text that is worth its marks; the exact limit is checked when they are gone.
        if self.text.len() + bytes.len() > 3 * OUTPUT_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        // Doubling must not take more memory than the output may ever have.
        let (held, needed) = (self.text.len(), self.text.len() + bytes.len());
        if needed > self.text.capacity() {
            self.text.reserve_exact(needed.max((2 * held).min(3 * OUTPUT_MAX)) - held);
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Text that stops growing at the limit.
struct Bounded {
    text: String,
    room: usize,
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.text.len() + text.len() > self.room {
            return Err(std::fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Pays for looking through a value, which a single instruction may do.
pub(crate) fn look(meter: &Meter, value: &Value) -> Result<(), Error> {
    let mut open = vec![value.clone()];
    let mut looked = 0usize;
    while let Some(value) = open.pop() {
        looked += 1 + value.as_str().map_or(0, |text| text.len() / 1024);
        let entries = match value.kind() {
            ValueKind::Map => value.len().unwrap_or(0),
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    looked += 1;
                    if looked as u64 > LOOKED_MAX {
                        break;
                    }
                    if matches!(
                        item.kind(),
                        ValueKind::Map | ValueKind::Seq | ValueKind::Iterable | ValueKind::String
                    ) {
                        open.push(item);
                    }
                }
                0
            }
            _ => 0,
        };
        looked = looked.saturating_add(entries);
        if looked as u64 > LOOKED_MAX {
            break;
        }
    }
    meter.look(looked)
}

/// What a value is worth with all that is inside it.
pub(crate) fn weigh(meter: &Meter, value: &Value, holds_namespace: bool) -> Result<(), Error> {
    let mut open = vec![(value.clone(), 0)];
    let mut values = 0usize;
    while let Some((value, depth)) = open.pop() {
        values += 1;
        if value.is_undefined() {
            return Err(undefined("an entry"));
        }
        if values * size_of::<Value>() > meter.room() {
            return Err(too_much());
        }
        if depth > NESTING_MAX {
            let detail = format!("a value is nested more than {NESTING_MAX} levels deep");
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        if value.as_object().is_some_and(|object| object.type_name().ends_with("Namespace")) {
            if !holds_namespace {
                let detail = "a namespace cannot hold another one";
                return Err(Error::new(ErrorKind::InvalidOperation, detail));
            }
            continue;
        }
        match value.kind() {
            ValueKind::Map => {
                for key in value.try_iter()? {
                    let inner = value.get_item(&key)?;
                    open.push((inner, depth + 1));
                }
            }
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    open.push((item, depth + 1));
                    if (open.len() + values) * size_of::<Value>() > meter.room() {
                        return Err(too_much());
                    }
                }
            }
            _ => {}
        }
    }
    meter.charge(values * size_of::<Value>())
}

pub(crate) fn text_of_value(meter: &Meter, value: &Value) -> Result<String, Error> {
    let text = unpaid_text(meter, value)?;
    meter.charge(text.len())?;
    Ok(text)
}

pub(crate) fn unpaid_text(meter: &Meter, value: &Value) -> Result<String, Error> {
    use std::fmt::Write;
    let mut out = Bounded { text: String::new(), room: meter.room() };
    match value.kind() {
        ValueKind::None => out.text.push_str("null"),
        _ => write!(out, "{value}").map_err(|_| too_much())?,
    }
    Ok(out.text)
}
