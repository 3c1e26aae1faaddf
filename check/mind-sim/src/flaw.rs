//! Nodes that are broken on purpose, to see that it is found.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Flaw {
    /// The directory forgets one of many sharers.
    ForgottenSharer,
    /// Memory stores whatever comes, however old.
    OldVersions,
    /// Memory acknowledges write-backs and keeps what it had.
    LostStores,
    /// Memory does not fence pages of blades that are gone.
    NoFences,
    /// Programs may write on while their page is written back.
    NoProtection,
    /// A blade shows its programs every page that it has, of whichever domain.
    ForeignPages,
    /// Stores leave a store buffer in any order.
    #[value(skip)]
    UnorderedStores,
}

impl Flaw {
    /// Those of nodes, which show without scripts.
    pub const ALL: [Self; 6] = [
        Self::ForgottenSharer,
        Self::OldVersions,
        Self::LostStores,
        Self::NoFences,
        Self::NoProtection,
        Self::ForeignPages,
    ];
}
