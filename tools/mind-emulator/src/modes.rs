//! The systems that are compared: how each differs from MIND as it is live.
//!
//! | Mode | Model |
//! |---|---|
//! | `mind` | as live: MSI, regions of 16 KiB at first touch, Bounded Splitting, as many slots as there are |
//! | `fixed:SIZE` | regions have one size and stay as they are |
//! | `unlimited` | each page is a region, and there is a slot for each |
//! | `private` | no directory: each blade has its own copy of all memory, as with FastSwap (EuroSys 2020), which shares nothing between blades. A page is fetched once and can then be read and written |
//! | `home` | each page is a region whose word is at a blade, its home, as with GAM (VLDB 2018): a request whose home is another blade takes one bare exchange more. What GAM's library costs at each access is not in it: `--local-ns` is |
//! | `moesi` | as `mind`, with MOESI for MSI: the owner that another blade reads from keeps its dirty pages and forwards them, and nothing is written back until it gives them up; a blade that reads what no blade has may write it without asking |
//! | `pso` | as `mind`, and writes do not wait: a thread goes on while its page comes, up to [`MOST_WRITES`] pages at a time; a read of such a page waits |
//! | `pso+` | `pso` and `unlimited`: the paper's MIND-PSO+ (section 7.1) |

use std::{fmt, str::FromStr};

use mind_common::{
    addr::{MAX_REGION_ORDER, PAGE_SHIFT},
    directory::index::UNIT_ORDER,
};

/// Pages that a thread may write to before it has them, in modes in which writes do not wait.
pub const MOST_WRITES: u32 = 64;

/// A system to emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// MIND.
    Mind,
    /// All regions are of this order.
    Fixed(u8),
    /// A slot for each page.
    Unlimited,
    /// Blades share nothing.
    Private,
    /// The directory is at compute blades.
    Home,
    /// MOESI.
    Moesi,
    /// Writes do not wait.
    Pso,
    /// Writes do not wait, and there is a slot for each page.
    PsoPlus,
}

/// How a blade may get what others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// It may not: no directory is asked.
    None,
    /// The live one.
    Msi,
    /// Dirty pages are shared by their owner.
    Moesi,
}

impl Mode {
    /// What to write for each mode.
    pub const NAMES: &str = "mind, fixed:SIZE, unlimited, private, home, moesi, pso, pso+";

    /// The order of a region at first touch.
    pub const fn order(self) -> u8 {
        match self {
            Self::Mind | Self::Moesi | Self::Pso => UNIT_ORDER,
            Self::Fixed(order) => order,
            Self::Unlimited | Self::Private | Self::Home | Self::PsoPlus => 0,
        }
    }

    /// Whether the number of slots is limited.
    pub const fn is_limited(self) -> bool {
        matches!(self, Self::Mind | Self::Fixed(_) | Self::Moesi | Self::Pso)
    }

    /// Whether regions are split and merged.
    pub const fn has_splitting(self) -> bool {
        matches!(self, Self::Mind | Self::Moesi | Self::Pso)
    }

    /// How blades share.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Private => Protocol::None,
            Self::Moesi => Protocol::Moesi,
            _ => Protocol::Msi,
        }
    }

    /// Whether a thread that writes waits for the page.
    pub const fn waits_for_writes(self) -> bool {
        !matches!(self, Self::Pso | Self::PsoPlus)
    }

    /// Whether words are at compute blades.
    pub const fn is_at_home(self) -> bool {
        matches!(self, Self::Home)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mind => f.write_str("mind"),
            Self::Fixed(order) => match (1u64 << PAGE_SHIFT << order) >> 10 {
                kib if kib < 1024 => write!(f, "fixed:{kib}K"),
                kib => write!(f, "fixed:{}M", kib / 1024),
            },
            Self::Unlimited => f.write_str("unlimited"),
            Self::Private => f.write_str("private"),
            Self::Home => f.write_str("home"),
            Self::Moesi => f.write_str("moesi"),
            Self::Pso => f.write_str("pso"),
            Self::PsoPlus => f.write_str("pso+"),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no mode; expected one of {}", Self::NAMES);
        if let Some(size) = text.strip_prefix("fixed:") {
            let bytes = mind_cli::whole_pages(size)?;
            let order = (bytes >> PAGE_SHIFT).ilog2();
            let order = u8::try_from(order)
                .ok()
                .filter(|order| *order <= MAX_REGION_ORDER);
            return order
                .filter(|_| bytes.is_power_of_two())
                .map(Self::Fixed)
                .ok_or_else(|| format!("`{text}`: regions are of 4K, 8K and so on up to 2M"));
        }
        let plain = [
            Self::Mind,
            Self::Unlimited,
            Self::Private,
            Self::Home,
            Self::Moesi,
            Self::Pso,
            Self::PsoPlus,
        ];
        plain
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        let all = Mode::NAMES.split(", ").filter(|name| *name != "fixed:SIZE");
        for name in all.chain(["fixed:4K", "fixed:16K", "fixed:2M"]) {
            assert_eq!(
                name.parse::<Mode>().map(|mode| mode.to_string()),
                Ok(name.to_owned())
            );
        }
        assert_eq!("fixed:16384".parse(), Ok(Mode::Fixed(2)));
        for wrong in [
            "",
            "Mind",
            "fixed",
            "fixed:",
            "fixed:12K",
            "fixed:4M",
            "fixed:1K",
            "pso++",
        ] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
    }
}
