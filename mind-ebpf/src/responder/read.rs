//! READ: the page takes the place of the request's padding.

use aya_ebpf::helpers::generated::bpf_xdp_store_bytes;
use mind_common::{
    addr::PAGE_SIZE,
    rewrite, stop,
    verdict::{Staged, Verdict},
    wire::{AETH_LEN, BTH_LEN, OUTER_LEN, Opcode, PAGE_REQUEST_LEN, Syndrome},
};

use super::{Service, page};

/// Where the page begins in the answer.
const PAGE_AT: u32 = (OUTER_LEN + BTH_LEN + AETH_LEN) as u32;

impl Service<'_> {
    /// Makes the frame a READ response.
    #[inline(always)]
    pub(super) fn read(&mut self) -> Staged<Verdict> {
        if self.len < PAGE_REQUEST_LEN {
            return Err(stop!(Invalid));
        }
        let page = page::whole(&self.frame.reth())?;
        let tag = page.tag()?;
        let bth = rewrite::answer(&self.frame.bth, Opcode::ReadResponse);
        // The header first: it is shorter than the request's, and the page begins right behind.
        self.frame.put_aeth(bth, Syndrome::Ack, tag.version());
        // SAFETY: the context is the kernel's, the bytes are a whole page of a map. The helper
        // changes bytes only, in fragments, too; the headers stay where they are.
        let stored = unsafe {
            bpf_xdp_store_bytes(self.ctx.ctx, PAGE_AT, page.bytes().cast(), PAGE_SIZE as u32)
        };
        if stored != 0 {
            return Err(stop!(Truncated));
        }
        if page.peek() != tag {
            return Err(stop!(Torn));
        }
        Ok(Verdict::Read)
    }
}
