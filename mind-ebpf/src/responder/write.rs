//! WRITE: a page is written back.

use aya_ebpf::helpers::generated::bpf_xdp_load_bytes;
use mind_common::{
    addr::PAGE_SIZE,
    memory::{Store, on_write},
    rewrite,
    serial::Version,
    stop,
    verdict::{Staged, Verdict},
    wire::{BTH_LEN, IMM_LEN, OUTER_LEN, Opcode, RETH_LEN, Syndrome, WRITE_LEN},
};

use super::{Service, page};

/// Where the page begins in the request.
const PAGE_AT: u32 = (OUTER_LEN + BTH_LEN + RETH_LEN + IMM_LEN) as u32;

impl Service<'_> {
    /// Stores the page if it is newer than what is there, and makes the frame its
    /// acknowledgement.
    #[inline(always)]
    pub(super) fn write(&mut self) -> Staged<Verdict> {
        if self.len < WRITE_LEN {
            return Err(stop!(Invalid));
        }
        let header = self.frame.write();
        let page = page::whole(&header.reth)?;
        let tag = page.tag()?;
        let version = Version::new(header.immediate.get());
        let verdict = match on_write(tag.version(), version) {
            Store::Accept => {
                let taken = page.take(tag)?;
                // SAFETY: the context is the kernel's, the bytes are a whole page of a map, which
                // only this program may change now.
                let loaded = unsafe {
                    bpf_xdp_load_bytes(self.ctx.ctx, PAGE_AT, page.bytes().cast(), PAGE_SIZE as u32)
                };
                if loaded != 0 {
                    taken.give_back();
                    return Err(stop!(Truncated));
                }
                taken.publish(version);
                Verdict::Stored
            }
            Store::Duplicate => Verdict::Duplicate,
            Store::Stale => return Err(stop!(Outdated)),
        };
        let bth = rewrite::answer(&self.frame.bth, Opcode::Acknowledge);
        self.frame.put_aeth(bth, Syndrome::Ack, version);
        Ok(verdict)
    }
}
