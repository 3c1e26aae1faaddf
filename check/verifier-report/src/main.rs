//! Loads every program of the eBPF objects that `MIND_EBPF_OBJECT` and `MIND_EBPF_HARNESS_OBJECT` name (nothing is
//! attached) and prints, one a line, its name and the instructions that the kernel's verifier walked. `cargo xtask vm`
//! runs it in the guest.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use aya::Ebpf;
use aya::programs::{Program, ProgramInfo};

const OBJECTS: [&str; 2] = ["MIND_EBPF_OBJECT", "MIND_EBPF_HARNESS_OBJECT"];

fn main() -> Result<()> {
    OBJECTS.into_iter().try_for_each(report)
}

/// Prints what the verifier walked of the object that the environment variable names.
fn report(variable: &str) -> Result<()> {
    let path = std::env::var_os(variable)
        .map(PathBuf::from)
        .with_context(|| {
            format!("{variable} does not name an eBPF object; `cargo xtask` sets it")
        })?;
    let mut object = Ebpf::load_file(&path)
        .with_context(|| format!("cannot load the eBPF object {}", path.display()))?;
    for (name, program) in object.programs_mut() {
        let instructions = load(program)
            .with_context(|| format!("cannot load the program {name} of {}", path.display()))?
            .verified_instruction_count()
            .context("this kernel does not count what its verifier walks (5.16 does)")?;
        println!("{name} {instructions}");
    }
    Ok(())
}

/// Loads `program`, whatever it is among those that the object has.
fn load(program: &mut Program) -> Result<ProgramInfo> {
    match program {
        Program::Xdp(program) => {
            program.load()?;
            Ok(program.info()?)
        }
        Program::SchedClassifier(program) => {
            program.load()?;
            Ok(program.info()?)
        }
        other => bail!(
            "programs of type {:?} are not known here",
            other.prog_type()
        ),
    }
}
