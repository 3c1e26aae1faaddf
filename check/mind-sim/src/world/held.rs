//! Packets that are held up in the switch: they have read its tables, and reach their region's word later, when other
//! packets and the controller have come between. As on a processor that is taken away from a virtual machine for a
//! while. What waits until packets have left the switch waits for those that are in it at that time.

use std::collections::BTreeMap;

use mind_machines::{
    Node,
    controller::{Input, OperationId, Seen},
    datagram::Datagram,
    switch::View,
};

use crate::{
    plan::Image,
    world::{Event, World},
};

/// A packet, and what it found when it came in.
struct Packet {
    view: View,
    from: Node,
    datagram: Datagram<Image>,
}

/// What waits for packets.
enum Waits {
    /// An operation of the controller's.
    Operation(OperationId),
    /// Slots that were taken out of the directory: packets may have found them before.
    Slots(Vec<u32>),
}

/// The packets in the switch, and what waits for them.
#[derive(Default)]
pub(crate) struct Held {
    packets: BTreeMap<u64, Packet>,
    /// How many there were so far.
    count: u64,
    /// Each with how many packets there were at that time.
    waits: Vec<(u64, Waits)>,
}

impl Held {
    /// Whether none is in the switch of the first so many.
    fn have_left(&self, before: u64) -> bool {
        self.packets
            .keys()
            .next()
            .is_none_or(|first| *first >= before)
    }

    /// The controller has died: what waited for packets is forgotten.
    pub(crate) fn forget_waits(&mut self) {
        self.waits.clear();
    }
}

impl World<'_> {
    /// A packet reaches the switch.
    pub(crate) fn at_switch(&mut self, from: Node, datagram: Datagram<Image>) {
        let Some(delay) = self.network.hold_up(self.queue.now()) else {
            return self.pass(from, datagram, None);
        };
        let number = self.held.count;
        self.held.count += 1;
        let packet = Packet {
            view: self.switch.view(),
            from,
            datagram,
        };
        self.held.packets.insert(number, packet);
        self.queue.after(delay, Event::HeldUp(number));
    }

    /// A packet that was held up goes on.
    pub(crate) fn goes_on(&mut self, number: u64) {
        let Some(packet) = self.held.packets.remove(&number) else {
            return;
        };
        let Packet {
            view,
            from,
            datagram,
        } = packet;
        self.pass(from, datagram, Some(&view));
        self.packets_left();
    }

    /// All packets that were held up go on, in the order in which they came.
    pub(crate) fn all_go_on(&mut self) {
        while let Some(number) = self.held.packets.keys().next().copied() {
            self.goes_on(number);
        }
    }

    /// The operation waits for the packets that are in the switch.
    pub(crate) fn wait_for_packets(&mut self, operation: OperationId) {
        let waits = Waits::Operation(operation);
        self.held.waits.push((self.held.count, waits));
        self.packets_left();
    }

    /// Slots can be opened again when the packets have left that are in the switch.
    pub(crate) fn retire(&mut self, slots: Vec<u32>) {
        self.switch.retire(&slots);
        let waits = Waits::Slots(slots);
        self.held.waits.push((self.held.count, waits));
        self.packets_left();
    }

    fn packets_left(&mut self) {
        let waits = std::mem::take(&mut self.held.waits);
        let (over, waiting) = waits
            .into_iter()
            .partition(|(before, _)| self.held.have_left(*before));
        self.held.waits = waiting;
        let over: Vec<(u64, Waits)> = over;
        for (_, waits) in over {
            match waits {
                Waits::Slots(slots) => self.switch.packets_left(&slots),
                Waits::Operation(operation) => {
                    let result = Seen::Done(Ok(()));
                    let now = self.queue.now();
                    self.controller
                        .handle(now, Input::Done { operation, result });
                    self.step_later();
                }
            }
        }
    }
}
