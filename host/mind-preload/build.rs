//! How the shared library is linked.

fn main() {
    // A thread runs in it until the process ends, so `dlclose` must leave it where it is.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
