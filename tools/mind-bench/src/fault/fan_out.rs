//! Which part of the system copies an invalidation: a choice of the run, made with the testbed and named in the
//! report.

use clap::ValueEnum;
use serde::Serialize;

/// What copies an invalidation for several blades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FanOut {
    /// The switch's TC program.
    Switch,
    /// The controller.
    Controller,
}
