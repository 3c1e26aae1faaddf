//! How the shared library is linked.

fn main() {
    let part = |name: &str| std::env::var(name).expect("cargo sets it");
    // The interface changes with the minor version until there is a first major one.
    let (major, minor) = (
        part("CARGO_PKG_VERSION_MAJOR"),
        part("CARGO_PKG_VERSION_MINOR"),
    );
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmind.so.{major}.{minor}");
    // A thread runs in it until the process ends, so `dlclose` must leave it where it is.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
