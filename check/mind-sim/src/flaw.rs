//! Flaws: machines that are broken on purpose, to check that the simulator finds it.

/// A flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Flaw {
    /// The directory forgets one of many sharers.
    ForgottenSharer,
    /// Memory stores every write-back, however old.
    OldVersions,
    /// Memory acknowledges write-backs and keeps what it had.
    LostStores,
    /// Memory does not fence pages of blades that are gone.
    NoFences,
    /// Programs may write on while their page is written back.
    NoProtection,
    /// A blade maps every page that it has for all programs, of any domain.
    ForeignPages,
    /// Stores leave a store buffer in any order.
    #[value(skip)]
    UnorderedStores,
}

impl Flaw {
    /// The flaws that are found without scripts.
    pub const ALL: [Self; 6] = [
        Self::ForgottenSharer,
        Self::OldVersions,
        Self::LostStores,
        Self::NoFences,
        Self::NoProtection,
        Self::ForeignPages,
    ];
}
