//! The switch's XDP and TC programs against `mind_machines::switch`.

use std::rc::Rc;

use mind_common::{
    addr::{Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::{Origin, Queue, State, Word},
    id::{BladeSet, Connection, DomainId},
    table::{
        FreeKind, MAY_READ, MAY_WRITE, PEER_PRESENT, PORT_FANS_OUT, PORT_HANDS_OVER, Peer,
        Permission, Port as PortEntry, Slot as SlotEntry, Translation,
    },
    verdict::Verdict,
    wire::{OUTER_LEN, SHORT_REQUEST_LEN},
};
use mind_dataplane::{
    Copies, MemoryLimits, Responder, Switch, SwitchLimits,
    harness::{Bed, Network, Seen, XdpAction},
};
use mind_machines::{
    Node,
    controller::{Act, Seen as Done},
    datagram::{Datagram, Envelope},
    switch::{Exit, Port, Slot, Switch as Model},
};

use crate::{
    Met,
    draw::{self, BLADES, PAGES, once_in, one_of},
    frames::{self, Bytes, SWITCH, blade},
};

const MEMORIES: u8 = 2;
/// Slots in use.
const SLOTS: usize = 12;
/// Pages of the largest region.
const MAX_ORDER: u8 = 3;
/// Slots that packets can open.
const UNUSED: usize = 1;
/// End here (`TC_ACT_SHOT`).
const SHOT: i32 = 2;

/// All verdicts of the switch on well-formed packets, XDP and TC.
const VERDICTS: [Verdict; 33] = [
    Verdict::Fetch,
    Verdict::Grant,
    Verdict::Invalidate,
    Verdict::PassedUp,
    Verdict::HandedOver,
    Verdict::NoFanOut,
    Verdict::WriteBack,
    Verdict::Operate,
    Verdict::Delivered,
    Verdict::Counted,
    Verdict::Granted,
    Verdict::Fetched,
    Verdict::PageForwarded,
    Verdict::StaleAnswer,
    Verdict::FannedOut,
    Verdict::Invalid,
    Verdict::NotPlaced,
    Verdict::Protected,
    Verdict::NoMemory,
    Verdict::NoSlot,
    Verdict::Moved,
    Verdict::Busy,
    Verdict::NoOrigin,
    Verdict::NoCopy,
    Verdict::Lost,
    Verdict::NotOwner,
    Verdict::Malformed,
    Verdict::UnexpectedOpcode,
    Verdict::Internal,
    Verdict::UnknownPort,
    Verdict::Impostor,
    Verdict::StaleConnection,
    Verdict::DeadBlade,
];

struct Pair {
    bed: Bed,
    copies: Copies,
    network: Network,
    model: Model,
    random: fastrand::Rng,
    met: Met,
}

/// Compares `rounds` fillings of the tables, each with `packets` packets.
pub fn compare(seed: u64, rounds: u32, packets: u32) {
    let network = Network::new(usize::from(BLADES + MEMORIES));
    let limits = SwitchLimits {
        interfaces: 64,
        domains: 8,
        protection: 64,
        translation: 16,
        slots: (SLOTS + UNUSED) as u32 + 1,
        ..SwitchLimits::default()
    };
    let switch = Switch::load(&limits).expect("the kernel loads a switch");
    let memory = MemoryLimits::for_pages(1);
    let responder = Responder::load(&memory).expect("the kernel loads a responder");
    let copies = switch.open_copies().expect("maps can be opened again");
    let mut pair = Pair {
        copies,
        bed: Bed::new(switch, responder).expect("both have their programs"),
        network: network.expect("taps can be made in a namespace of this thread's"),
        model: Model::new(SLOTS + UNUSED),
        random: fastrand::Rng::with_seed(seed),
        met: Met::default(),
    };
    let switch = &mut pair.bed.switch;
    switch.set_identity(SWITCH.ipv4, SWITCH.mac).expect("set");
    // Frames can be redirected to the ports of absent blades, too.
    for number in 0..BLADES + MEMORIES {
        pair.change_peer(number, true);
    }
    for round in 0..rounds {
        pair.fill_slots();
        pair.change_tables(if round == 0 { 1 } else { 4 });
        for number in 0..packets {
            if once_in(&mut pair.random, 8) {
                pair.change_tables(40);
            }
            pair.exchange(&format!("seed {seed:#x}, round {round}, packet {number}"));
        }
    }
    pair.met.expect(100, &VERDICTS);
}

impl Pair {
    fn node(number: u8) -> Node {
        match number.checked_sub(BLADES) {
            None => Node::Compute(blade(number)),
            Some(memory) => Node::Memory(memory),
        }
    }

    fn ifindex(&self, number: u8) -> u32 {
        self.network.taps[usize::from(number)].ifindex
    }

    /// Other regions, in other states.
    fn fill_slots(&mut self) {
        let random = &mut self.random;
        let directory = self.bed.switch.directory();
        for index in 0..SLOTS {
            let order = random.u8(..=MAX_ORDER);
            let at = draw::page(random.u64(..PAGES));
            let region = Region::containing(at, order).expect("an order of a region");
            let word = Word::new(
                one_of(random, &State::ALL),
                draw::some_blade(random),
                draw::episode(random),
                draw::some_blades(random),
            );
            let begun = if once_in(random, 3) {
                draw::episode(random)
            } else {
                word.episode()
            };
            let wanted = if once_in(random, 4) {
                draw::page(random.u64(..PAGES))
            } else {
                at
            };
            let origin = Origin::new(begun, draw::seq(random), wanted);
            let waiting = if random.bool() {
                0
            } else {
                random.u64(..1 << BLADES)
            };
            let queue = random.u64(..24) << 40 | random.u64(..32) << 32 | waiting;
            let slot = Slot {
                word,
                origin,
                queue: Queue::from_raw(queue),
                region: Some(region),
            };
            let mut entry = SlotEntry::new(word, region);
            entry.origin = origin.raw();
            entry.queue = queue;
            let handle = directory.slot(index as u32 + 1).expect("the slot is there");
            handle.reset(entry);
            *self.model.slot_mut(index).expect("the slot is there") = slot;
        }
        // Where regions overlap, the last one has the page; the others' pages find another region.
        self.model.tables_mut().pages.clear();
        for number in 0..PAGES {
            let page = Region::containing(draw::page(number), 0).expect("an order of a region");
            let retired = directory.assign(page, 0).expect("it can be changed");
            directory.give_retired(retired);
        }
        directory.drain(FreeKind::Slots);
        self.model.execute(&Act::StopOpening);
        // The lowest on top, as the model takes them.
        for index in (SLOTS..SLOTS + UNUSED).rev() {
            let slot = index as u32 + 1;
            let handle = directory.slot(slot).expect("the slot is there");
            handle.reset(SlotEntry::default());
            directory.give(FreeKind::Slots, slot);
            *self.model.slot_mut(index).expect("the slot is there") = Slot::default();
        }
        let opening: Vec<u32> = (SLOTS..SLOTS + UNUSED)
            .map(|index| index as u32 + 1)
            .collect();
        self.model.execute(&Act::StartOpening);
        while let Some(Done::Slot(Some(_))) = self.model.execute(&Act::TakeSlot) {}
        self.model.execute(&Act::GiveSlots { slots: opening });
        for index in 0..SLOTS {
            if once_in(random, 12) {
                continue;
            }
            let region = self.model.slots()[index].region.expect("each has one");
            let region = if once_in(random, 12) {
                region.whole().unwrap_or(region)
            } else {
                region
            };
            let assigned = directory.assign(region, index as u32 + 1);
            directory.give_retired(assigned.expect("it can be changed"));
            self.model.assign(region, Some(index));
        }
    }

    /// Changes each part of the tables with a chance of one in `times`.
    fn change_tables(&mut self, times: u32) {
        for number in 0..BLADES + MEMORIES {
            if once_in(&mut self.random, times) {
                self.change_port(number);
            }
            if once_in(&mut self.random, times) {
                let is_there = !once_in(&mut self.random, 8);
                self.change_peer(number, is_there);
            }
        }
        for domain in [DomainId(1), DomainId(2)] {
            if once_in(&mut self.random, times) {
                let bits = self.random.u32(..1 << BLADES)
                    | self.random.u32(..1 << BLADES)
                    | self.random.u32(..1 << BLADES);
                let blades = BladeSet::from_bits(bits);
                let placed = self.bed.switch.place(domain, blades);
                placed.expect("there is room for domains");
                self.model.place(domain, blades);
            }
            for part in 0..PAGES >> 4 {
                if once_in(&mut self.random, times) {
                    self.protect(domain, draw::page(part << 4));
                }
            }
        }
        let slice = Prefix {
            base: Va(WINDOW_BASE),
            shift: SLICE_SHIFT,
        };
        if once_in(&mut self.random, times) {
            self.translate(slice, 24);
        }
        for part in 0..PAGES >> 2 {
            if once_in(&mut self.random, times * 4) {
                let base = draw::page(part << 2);
                self.translate(Prefix { base, shift: 14 }, 2);
            }
        }
    }

    fn connection(&mut self, number: u8) -> Connection {
        Connection {
            blade: blade(number),
            incarnation: if once_in(&mut self.random, 6) { 6 } else { 5 },
        }
    }

    fn change_port(&mut self, number: u8) {
        let node = Self::node(number);
        let port = match node {
            _ if once_in(&mut self.random, 12) => None,
            Node::Compute(_) if once_in(&mut self.random, 40) => Some(Port::Memory),
            Node::Compute(_) => Some(Port::Compute(self.connection(number))),
            Node::Memory(_) => Some(Port::Memory),
        };
        let entry = match port {
            None => PortEntry::default(),
            Some(Port::Compute(connection)) => PortEntry::compute(connection),
            Some(Port::Memory) => PortEntry::memory(number % BLADES),
        };
        let flags = match self.random.u8(..4) {
            0 => 0,
            1 => PORT_HANDS_OVER,
            2 => PORT_FANS_OUT | PORT_HANDS_OVER,
            _ => PORT_FANS_OUT,
        };
        let ifindex = self.ifindex(number);
        let set = self
            .bed
            .switch
            .set_port(ifindex, PortEntry { flags, ..entry });
        set.expect("the port can be set");
        let tables = self.model.tables_mut();
        match port {
            Some(port) => tables.ports.insert(node, port),
            None => tables.ports.remove(&node),
        };
        for (ports, flag, is_listed) in [
            (&mut tables.without_tc, PORT_FANS_OUT, false),
            (&mut tables.hands_over, PORT_HANDS_OVER, true),
        ] {
            if (flags & flag != 0) == is_listed {
                ports.insert(node);
            } else {
                ports.remove(&node);
            }
        }
    }

    fn change_peer(&mut self, number: u8, is_there: bool) {
        let connection = self.connection(number);
        let node = Self::node(number);
        let host = frames::host(node);
        let peer = Peer {
            ipv4: host.ipv4.octets(),
            mac: host.mac,
            flags: PEER_PRESENT,
            ifindex: self.ifindex(number),
            connection: match node {
                Node::Compute(_) => connection.to_qp(),
                Node::Memory(_) => 0,
            },
        };
        let peer = if is_there { peer } else { Peer::default() };
        let switch = &mut self.bed.switch;
        let tables = self.model.tables_mut();
        match node {
            Node::Compute(blade) => {
                switch.set_compute(blade, peer).expect("it can be set");
                if is_there {
                    tables.compute.insert(blade, connection);
                } else {
                    tables.compute.remove(&blade);
                }
            }
            Node::Memory(memory) => {
                switch.set_memory(memory, peer).expect("it can be set");
                if is_there {
                    tables.memory.insert(memory);
                } else {
                    tables.memory.remove(&memory);
                }
            }
        }
    }

    /// What a domain may do with 16 pages: with all of them, or with each four. Entries of one
    /// domain do not overlap.
    fn protect(&mut self, domain: DomainId, base: Va) {
        let whole = Prefix { base, shift: 16 };
        let quarters = (0..4).map(|n| Prefix {
            base: Va(base.0 + (n << 14)),
            shift: 14,
        });
        let quarters: Vec<_> = quarters.collect();
        for prefix in quarters.iter().chain([&whole]) {
            let removed = self.bed.switch.unprotect(domain, *prefix);
            removed.expect("an entry can be removed");
            self.model
                .tables_mut()
                .protection
                .remove(&(domain, *prefix));
        }
        let wanted = if once_in(&mut self.random, 3) {
            quarters
        } else {
            vec![whole]
        };
        for prefix in wanted {
            let bits = one_of(
                &mut self.random,
                &[
                    0,
                    MAY_READ,
                    MAY_READ | MAY_WRITE,
                    MAY_READ | MAY_WRITE,
                    MAY_READ | MAY_WRITE,
                ],
            );
            if once_in(&mut self.random, 8) {
                continue;
            }
            let permission = Permission { bits };
            let set = self.bed.switch.protect(domain, prefix, permission);
            set.expect("there is room for entries");
            let protection = &mut self.model.tables_mut().protection;
            protection.insert((domain, prefix), permission);
        }
    }

    fn translate(&mut self, prefix: Prefix, of: u32) {
        let switch = &mut self.bed.switch;
        if once_in(&mut self.random, of) {
            switch.untranslate(prefix).expect("it can be removed");
            self.model.tables_mut().translation.remove(&prefix);
            return;
        }
        let memory = one_of(&mut self.random, &[0, 0, 0, 1, 1, 7]);
        let offset = self.random.u64(..64) << 12;
        let entry = Translation::new(memory, prefix.base, offset);
        let set = switch.translate(prefix, entry);
        set.expect("there is room for entries");
        self.model.tables_mut().translation.insert(prefix, entry);
    }

    fn draw(&mut self, port: u8) -> Datagram<Bytes> {
        let model = &self.model;
        let slot_of = |va: Va| {
            let index = model.tables().slot(va)?;
            let slot = &model.slots()[index];
            slot.region
                .map(|region| (index as u32 + 1, slot.word, region))
        };
        let body = draw::body(&mut self.random, slot_of);
        let own = match model.tables().ports.get(&Self::node(port)) {
            Some(Port::Compute(connection)) => connection.to_qp(),
            _ => {
                let number = self.random.u8(..BLADES);
                self.connection(number).to_qp()
            }
        };
        let qp = match self.random.u32(..32) {
            0 => {
                let number = self.random.u8(..BLADES);
                self.connection(number).to_qp()
            }
            1 => self.random.u32(..1 << 24),
            _ => own,
        };
        Datagram {
            envelope: Envelope {
                qp,
                seq: draw::seq(&mut self.random),
                attempt: one_of(&mut self.random, &[0, 0, 1, 127]),
            },
            body,
        }
    }

    fn exchange(&mut self, place: &str) {
        let from = match self.random.u32(..8) {
            0 => BLADES + self.random.u8(..MEMORIES),
            _ => self.random.u8(..BLADES),
        };
        let port = Self::node(from);
        let packet = self.draw(from);
        let frame = frames::frame(&packet, frames::host(port), SWITCH);
        let run = self.bed.ingress(self.ifindex(from), frame.bytes());
        let run = run.expect("the kernel runs the program");
        self.met.count(run.verdict);

        let (verdict, exit) = self.model.ingress(port, packet.clone());
        assert_eq!(run.verdict, verdict, "{place}: {packet:?} at {port}");
        match (run.action, exit) {
            (XdpAction::Drop, Exit::Ends) => {}
            (XdpAction::Redirect, Exit::To(node, expected)) => {
                assert_eq!(run.frame.to(), frames::host(node), "{place}: {packet:?}");
                assert_eq!(frames::packet(&run.frame), expected, "{place}: {packet:?}");
            }
            (XdpAction::Pass, Exit::Up(passed)) => self.fan_out(place, from, &run.frame, &passed),
            (XdpAction::Drop, Exit::Over(passed)) => self.handed_over(place, &passed),
            (action, exit) => panic!("{place}: {packet:?} at {port}: {action:?} {exit:?}"),
        }
        self.compare_slots(&format!("{place}: {packet:?} at {port}"));
    }

    /// What XDP passed up, handed to TC.
    fn fan_out(&mut self, place: &str, from: u8, seen: &Seen, passed: &Datagram<Bytes>) {
        // A test run of a TC program takes frames of one memory page at most.
        let headers = &seen.bytes()[..OUTER_LEN + SHORT_REQUEST_LEN];
        let frame = frames::frame(passed, frames::host(Self::node(from)), SWITCH)
            .put(0, headers)
            .payload_len(SHORT_REQUEST_LEN);
        let ran = self.bed.fan_out(self.ifindex(from), frame.bytes(), false);
        let (action, verdict) = ran.expect("the kernel runs the program");
        let (expected, copies) = self.model.fan_out::<_, Bytes>(passed);
        assert_eq!((action, verdict), (SHOT, expected), "{place}: {passed:?}");
        if let Some(verdict) = verdict {
            self.met.count(verdict);
        }
        for number in 0..BLADES {
            let node = Self::node(number);
            let to = |(to, packet): &(Node, Datagram<Bytes>)| (*to == node).then(|| packet.clone());
            let expected: Vec<_> = copies.iter().filter_map(to).collect();
            let sent = self.sent_to(number);
            let packets: Vec<_> = sent.iter().map(frames::packet).collect();
            assert_eq!(packets, expected, "{place}: copies to {node} of {passed:?}");
            let host = frames::host(node);
            assert!(sent.iter().all(|seen| seen.to() == host), "{place}: {node}");
        }
    }

    /// What XDP handed over, copied as the controller does.
    fn handed_over(&mut self, place: &str, passed: &Datagram<Bytes>) {
        let mut sent = Vec::new();
        let taken = self.copies.take(|address, payload| {
            let copy = Datagram::parse(payload).expect("a datagram that blades get");
            let copy = copy.map(|page| Bytes(Rc::new(*page)));
            sent.push((address, copy));
        });
        let (_, copies) = self.model.fan_out::<_, Bytes>(passed);
        let copies = copies.into_iter();
        let expected: Vec<_> = copies
            .map(|(node, packet)| (frames::host(node).ipv4, packet))
            .collect();
        assert_eq!(taken.packets, 1, "{place}: {passed:?}");
        assert_eq!(sent, expected, "{place}: copies of {passed:?}");
    }

    /// The frames of ours that were sent to a blade; its host's stack sends its own.
    fn sent_to(&mut self, number: u8) -> Vec<Seen> {
        let frames = self.network.taps[usize::from(number)].sent();
        let ours = |frame: &Vec<u8>| frame.get(12..14) == Some(&[8, 0]);
        frames.into_iter().filter(ours).map(Seen::new).collect()
    }

    fn compare_slots(&self, place: &str) {
        let directory = self.bed.switch.directory();
        for (index, expected) in self.model.slots().iter().enumerate() {
            let handle = directory.slot(index as u32 + 1).expect("the slot is there");
            let slot = Slot {
                word: handle.word(),
                origin: handle.origin(),
                queue: Queue::from_raw(handle.queue()),
                region: expected.region,
            };
            assert_eq!(slot, *expected, "{place}: slot {index}");
        }
        for number in 0..PAGES {
            let page = draw::page(number);
            let expected = self.model.tables().slot(page);
            let expected = expected.map_or(0, |index| index as u32 + 1);
            let found = directory.slot_of(page).expect("it can be looked up");
            assert_eq!(found, expected, "{place}: {page}");
        }
    }
}
