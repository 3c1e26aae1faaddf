//! Says in words what is missing when the eBPF object was not built first.

fn main() {
    const OBJECT: &str = "MIND_EBPF_OBJECT";
    println!("cargo::rerun-if-env-changed={OBJECT}");
    match std::env::var(OBJECT) {
        Ok(path) => println!("cargo::rerun-if-changed={path}"),
        Err(_) => println!(
            "cargo::error={OBJECT} is not set: this crate contains the eBPF object. Build with `cargo xtask build`, \
             test with `cargo xtask test`, or set {OBJECT} to the path that `cargo xtask build` prints."
        ),
    }
}
