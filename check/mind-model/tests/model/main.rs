//! What the model is made of: worlds, their canonical form and their pieces, properties, and the table of a path. One
//! program, for the machines of the protocol are compiled into each anew.

mod canonical;
mod liveness;
mod packed;
mod properties;
mod trace;
