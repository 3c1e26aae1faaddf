//! The data plane from user space: loads the eBPF programs of the switch and of memory blades,
//! gives typed access to their maps, pins them, and attaches them to interfaces.
//!
//! * [`Switch`]: the switch's programs and tables,
//! * [`Responder`]: a memory blade's program and pages,
//! * [`Directory`]: the directory's slots, mapped, changed by compare-and-swap beside the programs,
//! * [`attach`]: ports, native XDP and tcx, with pinned links,
//! * [`checksum`]: what the blades' sockets leave out,
//! * [`Tally`]: packets by verdict,
//! * [`Copies`]: packets for several blades, where the controller copies them,
//! * [`Traces`]: what became of each packet, for those who ask; [`TraceControl`]: who asks for what.
//!
//! What the values mean is said in [`mind_common::table`]; no policy lives here.

pub mod attach;
pub mod checksum;
mod copies;
mod directory;
mod error;
#[cfg(feature = "harness")]
pub mod harness;
mod limits;
mod mapped;
mod maps;
mod object;
mod responder;
mod store;
mod switch;
mod tally;
mod traces;
mod value;

pub use copies::{Copies, Taken};
pub use directory::{Directory, SlotHandle};
pub use error::{Error, Result};
pub use limits::{MemoryLimits, SwitchLimits};
pub use object::digest as object_digest;
pub use responder::Responder;
pub use store::Store;
pub use switch::Switch;
pub use tally::Tally;
pub use traces::{TraceControl, Traces};
