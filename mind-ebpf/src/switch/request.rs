//! Requests for a page: READ, ACQUIRE, UPGRADE.

use aya_ebpf::bindings::xdp_action;
use mind_common::{
    addr::{PAGE_SIZE, Region, Va},
    directory::{Order, Path, Request, RequestVerdict, Want},
    id::DomainId,
    rewrite,
    serial::Version,
    table::{HandedOver, MAY_READ, MAY_WRITE},
    verdict::Verdict,
    wire::{Ceth, Invalidation, Opcode, PAGE_REQUEST_LEN, Reth, SHORT_REQUEST_LEN, Syndrome},
};

use super::{
    Passage,
    admission::{self, Place},
    directory::{self, SlotRef},
    send,
};
use crate::{
    decision::{Decision, Staged, Stop, stop},
    maps,
};

/// Bytes that the request must have, and the permission that it takes.
#[inline(always)]
const fn needs(want: Want) -> (usize, u32) {
    match want {
        Want::Read => (PAGE_REQUEST_LEN, MAY_READ),
        Want::Acquire => (PAGE_REQUEST_LEN, MAY_WRITE),
        Want::Upgrade => (SHORT_REQUEST_LEN, MAY_WRITE),
    }
}

impl Passage<'_> {
    /// The blade behind the port wants a page.
    #[inline(always)]
    pub(super) fn request(&mut self, want: Want) -> Staged {
        let (len, class) = needs(want);
        if self.len < len {
            return Err(stop!(Invalid));
        }
        let reth = self.frame.reth();
        let page = admission::page(&reth)?;
        let domain = reth.domain();
        admission::placed(self.from, domain)?;
        // Before anything is said of the directory: what is denied is denied, slot or not.
        let number = directory::number(page);
        let slot = directory::slot(number);
        let kept = admission::admit(slot, domain, page, class)?;
        // Before the word changes: a page that nobody can supply must not be given away.
        let place = match want {
            Want::Read | Want::Acquire => {
                Some(admission::place(kept, page).ok_or(stop!(NoMemory))?)
            }
            Want::Upgrade => None,
        };
        let slot = slot.ok_or(stop!(NoSlot))?;
        let request = Request {
            from: self.from,
            want,
            repeated: self.frame.bth.attempt() > 0,
        };
        let (verdict, region, path) = slot.request(page, request)?;
        match verdict {
            RequestVerdict::Fetch => {
                slot.touch();
                self.fetch(place.ok_or(stop!(NoMemory))?, path)
            }
            RequestVerdict::Grant => {
                slot.touch();
                self.grant(path)
            }
            RequestVerdict::Invalidate(order) => {
                self.invalidate(slot, number, region, page, &order)
            }
            RequestVerdict::Refuse(refusal) => Err(Stop::directory(refusal)),
        }
    }

    /// On to memory, as a READ; the answer goes to who asked, under the same number.
    #[inline(always)]
    fn fetch(&mut self, place: Place, path: Path) -> Staged {
        let bth = rewrite::granted(&self.frame.bth, Opcode::Read, path);
        let reth = Reth::new(place.offset, DomainId(0), PAGE_SIZE as u32);
        self.frame.put_reth(bth, reth);
        self.redirect(place.peer, Verdict::Fetch)
    }

    /// Back, as its own acknowledgement.
    #[inline(always)]
    fn grant(&mut self, path: Path) -> Staged {
        self.frame.bth.set_attempt(path as u8);
        self.frame.acknowledge(Syndrome::Ack, Version::new(0));
        send::back(self.ifindex, Verdict::Grant)
    }

    /// Becomes the INVALIDATE: to one blade from here, to several by way of TC or of the controller,
    /// since XDP can send a frame only once.
    #[inline(always)]
    fn invalidate(
        &mut self,
        slot: SlotRef,
        number: u32,
        region: Region,
        page: Va,
        order: &Order,
    ) -> Staged {
        let (seq, page) = slot.origin_of(order, region, page, self.frame.bth.seq())?;
        let invalidation = Invalidation {
            page,
            region,
            slot: number,
            episode: order.episode,
            requester: order.requester,
            target: order.target,
            supply: order.supply,
        };
        let ceth = Ceth::new(&invalidation, order.blades);
        if order.blades.is_single() {
            let blade = order.blades.first().ok_or(stop!(DeadBlade))?;
            let peer = send::compute(blade).ok_or(stop!(DeadBlade))?;
            let bth = rewrite::invalidate(peer.connection_of(blade), seq);
            self.frame.put_ceth(bth, ceth);
            self.redirect(peer, Verdict::Invalidate)
        } else if self.port.fans_out() {
            let bth = rewrite::pass_up(&self.frame.bth, seq);
            self.frame.put_ceth(bth, ceth);
            Ok(Decision {
                verdict: Verdict::PassedUp,
                action: xdp_action::XDP_PASS,
            })
        } else if self.port.hands_over() {
            // Written in place: on the stack, parts of it would not be aligned as the verifier wants them.
            let mut entry = maps::HANDED_OVER
                .reserve::<HandedOver>(0)
                .ok_or(stop!(HandOverFull))?;
            entry.write(HandedOver {
                bth: rewrite::pass_up(&self.frame.bth, seq),
                ceth,
            });
            entry.submit(0);
            Ok(Decision {
                verdict: Verdict::HandedOver,
                action: xdp_action::XDP_DROP,
            })
        } else {
            // Nobody would take the packet up but the bridge, which would flood it.
            Err(stop!(NoFanOut))
        }
    }
}
