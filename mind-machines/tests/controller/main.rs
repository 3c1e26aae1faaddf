//! The controller as a machine: what becomes of requests, blades and regions, whatever else is under way, and whenever
//! it dies.

mod agreement;
mod bounds;
mod deaths;
mod leaving;
mod losses;
mod old_answers;
mod pieces;
mod regions;
mod requests;
mod sizes;
mod world;
mod zeroing;
