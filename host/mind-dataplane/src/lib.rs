//! The data plane from user space: loads the eBPF programs of the switch and of memory blades,
//! gives typed access to their maps, pins them, and attaches them to interfaces.
//!
//! * [`Switch`]: the switch's programs and tables,
//! * [`Responder`]: a memory blade's program and pages,
//! * [`Directory`]: the directory's slots, mapped, changed by compare-and-swap beside the programs,
//! * [`wait_for_packets`]: until what was taken out of it can be used again; [`Shortages`]: when little is left,
//! * [`replace`]: a switch that takes the place of the one that is pinned, while packets come,
//! * [`attach`]: ports, native XDP and tcx, with pinned links,
//! * [`checksum`]: UDP sockets without checksums, for blades,
//! * [`PacketCounters`]: packets by verdict,
//! * [`Copies`]: packets for several blades, where the controller copies them,
//! * [`Traces`]: the records of traced packets; [`TraceControl`]: which packets are traced.
//!
//! The layouts and units of values are those of [`mind_common::table`]; no policy lives here.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use mind_common::table::Port;
//! use mind_dataplane::{Switch, SwitchLimits, attach};
//!
//! let mut switch = Switch::load(&SwitchLimits::default())?;
//! switch.set_identity([198, 18, 0, 1].into(), [2, 0, 0, 0, 0, 1])?;
//! let folder = Path::new("/sys/fs/bpf/example");
//! switch.pin(folder)?;
//! switch.set_port(attach::index_of("eth1")?, Port::memory(0))?;
//! attach::attach_port(&mut switch, "eth1", folder, attach::FanOut::Switch)?;
//! # Ok::<(), mind_dataplane::Error>(())
//! ```

pub mod attach;
pub mod checksum;
mod copies;
mod counters;
mod directory;
mod error;
mod grace;
#[cfg(feature = "harness")]
pub mod harness;
mod limits;
mod mapped;
mod maps;
mod object;
pub mod replace;
mod responder;
mod shortages;
mod store;
mod switch;
mod traces;
mod value;

pub use copies::{Copies, Taken};
pub use counters::PacketCounters;
pub use directory::{Directory, Retired, SlotHandle};
pub use error::{Error, Result};
pub use grace::wait_for_packets;
pub use limits::{MemoryLimits, SwitchLimits};
pub use object::{digest as object_digest, layout as object_layout};
pub use responder::Responder;
pub use shortages::Shortages;
pub use store::Store;
pub use switch::Switch;
pub use traces::{TraceControl, Traces};
