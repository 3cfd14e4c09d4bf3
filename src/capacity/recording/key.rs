//! By what a page is found again: names, as numbers.

/// What a page of a recording speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// Something that was done to a node, claim, pod or machine of this name, or happened to it.
    About(&'a str),
    /// Why the node stays.
    Kept(&'a str),
    /// A commit came into force.
    Commit,
}

impl Key<'_> {
    /// The number in the index (FNV-1a). Different keys may share one: then a page is looked at in vain.
    pub fn number(self) -> u32 {
        let (kind, name) = match self {
            Self::About(name) => (b'a', name),
            Self::Kept(name) => (b'k', name),
            Self::Commit => (b'c', ""),
        };
        let bytes = std::iter::once(kind).chain(name.bytes());
        bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}
