//! The metrics of MIND's daemons, for Prometheus.
//!
//! * [`catalogue`] declares every family once,
//! * [`Families`] collects what a daemon shows at one moment,
//! * [`page`] serves it over HTTP.
//!
//! Names follow Prometheus's conventions: `mind_` first, base units (seconds, bytes), `_total` for what only grows.
//! Labels are names (of blades, ports, domains, verdicts), never addresses: a series for each page would be more than
//! any server keeps.

pub mod catalogue;
mod families;
pub mod page;

pub use families::{Families, Family, Observations};
