//! What a program may not have, since the blade would not see what it does to memory: io_uring, whose registered buffers
//! are pinned pages. Programs that would use it find that the kernel has none (ENOSYS), and use something else.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// `io_uring_setup` and `io_uring_register`, the same numbers on all architectures.
const CALLS: [i64; 2] = [425, 427];

/// ENOSYS.
const NO_SUCH_CALL: u32 = 38;

/// Refuses it to this process and to all that it becomes and starts.
pub(crate) fn refuse() -> Result<()> {
    let rules: BTreeMap<_, _> = CALLS.map(|call| (call, Vec::new())).into();
    let architecture = std::env::consts::ARCH
        .try_into()
        .context("no filter of system calls is known for this processor")?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(NO_SUCH_CALL),
        architecture,
    )?;
    let filter: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&filter)?;
    Ok(())
}
