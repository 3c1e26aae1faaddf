//! The world of the packet table: 32 compute blades, two memory blades, a few regions; the
//! messages that the blades send, and what must hold of every frame that comes out.

use mind_common::addr::Page;
use mind_machines::datagram::Body;
use std::{cell::RefCell, collections::HashSet};

use mind_common::{
    addr::{PAGE_SIZE, Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::{Prior, Source, State, Target, Transition, Word},
    id::{BladeId, BladeSet, Connection, DomainId, MAX_BLADES},
    refusal::Refusal,
    serial::{Episode, Seq, Version},
    table::{
        FreeKind, HEADERS_LEN, Headers, MAY_READ, MAY_WRITE, PEER_PRESENT, PORT_FANS_OUT, PageTag,
        Peer, Permission, Port, Slot, Template, Translation,
    },
    verdict::{Kind, Verdict},
    wire::{Atomic, Cost, Invalidation, Syndrome},
};
use mind_dataplane::{
    Copies, MemoryLimits, PacketCounters, Responder, SlotHandle, Switch, SwitchLimits,
    harness::{Bed, Host, Network, Packet, Run, Seen, XdpAction},
};
use mind_machines::datagram::{Datagram, PageRequest};

/// One line of the table.
#[derive(Clone, Copy)]
pub struct Case {
    /// The rule that it holds.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&mut World),
}

/// The functions' names are the rules that they hold.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub const CASES: &[$crate::world::Case] = &[
            $($crate::world::Case { name: stringify!($name), run: $name },)+
        ];
    };
}
pub(crate) use cases;

/// The switch.
pub const SWITCH: Host = Host::numbered(254);
/// Compute blades that are there: all that there can be. [`DOMAIN`] is on the first four.
pub const COMPUTE_BLADES: u8 = MAX_BLADES as u8;
/// Memory blades that are there: 0 and 1.
pub const MEMORY_BLADES: u8 = 2;
/// The incarnation of all compute blades.
pub const INCARNATION: u16 = 5;

/// A domain that is placed on blades 0 to 3.
pub const DOMAIN: DomainId = DomainId(1);
/// A domain that is placed on blade 1 only, and may do nothing.
pub const UNPERMITTED: DomainId = DomainId(2);

/// A region of four pages, to read and write; its slot is [`SLOT`].
pub const PAGE: Va = Va(WINDOW_BASE);
/// Its slot.
pub const SLOT: u32 = 1;
/// To read only; slot 2.
pub const READ_ONLY: Va = Va(WINDOW_BASE + (1 << 20));
/// Kept on memory blade 1, though its neighbours are on 0; slot 3.
pub const OUTLIER: Va = Va(WINDOW_BASE + 0x1_0000);
/// To read and write, but without a slot.
pub const SLOTLESS: Va = Va(WINDOW_BASE + 0x8_0000);
/// To read and write, in a block without a table.
pub const BLOCKLESS: Va = Va(WINDOW_BASE + (4 << 20));
/// To read and write, in the slice of a memory blade that is not there.
pub const ABSENT: Va = Va(WINDOW_BASE + (1 << SLICE_SHIFT));
/// To read and write, in a slice that no memory blade serves.
pub const UNSERVED: Va = Va(WINDOW_BASE + (2 << SLICE_SHIFT));
/// Where memory blade 0 keeps [`PAGE`].
pub const OFFSET: u64 = 0x4000;
/// Where memory blade 1 keeps [`OUTLIER`].
pub const OUTLIER_OFFSET: u64 = 0x9000;

/// To read and write.
pub const EVERYTHING: u32 = MAY_READ | MAY_WRITE;

/// Pages of the memory blade.
pub const PAGES: usize = 64;

/// The compute blade with that number.
pub fn blade(number: u8) -> BladeId {
    BladeId::new(number).expect("a blade's number is below 32")
}

/// These compute blades.
pub fn blades<const N: usize>(numbers: [u8; N]) -> BladeSet {
    numbers.into_iter().map(blade).collect()
}

/// The addresses of the compute blade with that number.
pub fn compute(number: u8) -> Host {
    Host::numbered(1 + number)
}

/// The addresses of the memory blade with that number.
pub fn memory(number: u8) -> Host {
    Host::numbered(101 + number)
}

/// The current connection of the compute blade with that number.
pub fn qp(number: u8) -> u32 {
    Connection {
        blade: blade(number),
        incarnation: INCARNATION,
    }
    .to_qp()
}

/// A page of bytes that differ.
pub fn pattern(salt: u8) -> [u8; PAGE_SIZE] {
    std::array::from_fn(|at| (at as u8).wrapping_mul(7) ^ (at >> 8) as u8 ^ salt)
}

fn send(from: u8, message: &Body<&Page>) -> Packet {
    Packet::new(message, compute(from), SWITCH, qp(from))
}

/// A request for `page`, in [`DOMAIN`].
pub fn request(page: Va) -> PageRequest {
    PageRequest {
        page,
        domain: DOMAIN,
    }
}

/// A READ of blade `from`.
pub fn read(from: u8, page: Va) -> Packet {
    send(from, &Body::read(request(page)))
}

/// An ACQUIRE of blade `from`.
pub fn acquire(from: u8, page: Va) -> Packet {
    send(from, &Body::acquire(request(page)))
}

/// An UPGRADE of blade `from`.
pub fn upgrade(from: u8, page: Va) -> Packet {
    send(from, &Body::upgrade(request(page)))
}

/// A WRITE of blade `from`, which makes the page `version`.
pub fn write_back(from: u8, page: Va, version: u32, data: &[u8; PAGE_SIZE]) -> Packet {
    let message = Body::Write {
        page: request(page),
        version: Version::new(version),
        data,
    };
    send(from, &message)
}

/// An atomic operation of blade `from`.
pub fn operate(from: u8, va: Va, operation: Atomic) -> Packet {
    let message = Body::Atomic {
        va,
        domain: DOMAIN,
        operation,
    };
    send(from, &message)
}

/// The invalidation of the region around [`PAGE`], for `requester`.
pub fn invalidation(requester: u8, episode: u32, target: Target, source: Source) -> Invalidation {
    Invalidation {
        page: PAGE,
        region: Region::containing(PAGE, 2).expect("order 2 is a region's"),
        slot: SLOT,
        episode: Episode::new(episode),
        requester: blade(requester),
        target,
        source,
    }
}

/// An INVALIDATE-ACK of blade `from`.
pub fn ack(from: u8, invalidation: Invalidation) -> Packet {
    let cost = Cost {
        dropped: 3,
        flushed: 1,
    };
    send(from, &Body::answer(invalidation, cost))
}

/// An INVALIDATE-ACK-FETCH of blade `from`.
pub fn ack_fetch(from: u8, invalidation: Invalidation) -> Packet {
    let cost = Cost::default();
    send(from, &Body::answer_with_fetch(invalidation, cost))
}

/// A FORWARD of blade `from`.
pub fn forward(from: u8, invalidation: Invalidation, data: &[u8; PAGE_SIZE]) -> Packet {
    let message = Body::Forward {
        invalidation,
        cost: Cost::default(),
        version: Version::new(7),
        data,
    };
    send(from, &message)
}

/// An answer of memory blade `from` to compute blade `to`, through the switch.
pub fn from_memory(from: u8, to: u8, message: &Body<&Page>) -> Packet {
    Packet::new(message, memory(from), SWITCH, qp(to))
}

/// A bare acknowledgement.
pub fn acknowledgement() -> Body<&'static Page> {
    Body::Acknowledge {
        syndrome: Syndrome::Ack,
        version: Version::new(0),
    }
}

/// Programs, tables, devices.
pub struct World {
    /// The programs.
    pub bed: Bed,
    network: Network,
    met: HashSet<Verdict>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

impl World {
    /// Makes this thread's world.
    pub fn make() -> anyhow::Result<()> {
        let network = Network::new(usize::from(COMPUTE_BLADES + MEMORY_BLADES))?;
        let mut world = Self {
            bed: Self::load(false)?,
            network,
            met: HashSet::new(),
        };
        world.prepare()?;
        WORLD.set(Some(world));
        Ok(())
    }

    fn load(lose_on_purpose: bool) -> anyhow::Result<Bed> {
        let limits = SwitchLimits {
            interfaces: 64,
            domains: 8,
            protection: 64,
            translation: 16,
            slots: 64,
            // Few, so that a race can be lost in a test's time.
            tries: 2,
            log_verdicts: false,
            lose_on_purpose,
        };
        let memory = MemoryLimits {
            interfaces: 64,
            ..MemoryLimits::for_pages(PAGES as u32)
        };
        Ok(Bed::new(Switch::load(&limits)?, Responder::load(&memory)?)?)
    }

    /// Runs `f` with a switch that can lose packets on purpose.
    pub fn losing(&mut self, f: impl FnOnce(&mut Self)) {
        let bed = Self::load(true).expect("a second switch can be loaded");
        let bed = std::mem::replace(&mut self.bed, bed);
        self.prepare().expect("its tables can be filled");
        self.reset();
        f(self);
        self.bed = bed;
    }

    /// Runs `f` on this thread's world.
    pub fn with<T>(f: impl FnOnce(&mut Self) -> T) -> T {
        WORLD.with_borrow_mut(|world| f(world.as_mut().expect("the world is made first")))
    }

    /// The verdicts that no case met.
    pub fn unmet(&self) -> Vec<&'static str> {
        let unmet = Verdict::ALL.into_iter().filter(|v| !self.met.contains(v));
        unmet.map(Verdict::name).collect()
    }

    /// The interface of compute blade `number`'s port.
    pub fn port(&self, number: u8) -> u32 {
        self.network.taps[usize::from(number)].ifindex
    }

    /// The interface of memory blade `number`'s port.
    pub fn memory_port(&self, number: u8) -> u32 {
        self.port(COMPUTE_BLADES + number)
    }

    /// An interface that is no port: the loopback.
    pub const NO_PORT: u32 = 1;

    /// What no case changes.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let switch = &mut self.bed.switch;
        let prefix = |base, shift| Prefix { base, shift };
        let outlier = Translation::new(1, OUTLIER, OUTLIER_OFFSET);
        switch.translate(prefix(OUTLIER, 14), outlier)?;
        let absent = Translation::new(7, ABSENT, 0);
        switch.translate(prefix(ABSENT, SLICE_SHIFT), absent)?;
        let directory = switch.directory();
        // First touches have cases of their own, which give slots back.
        directory.drain(FreeKind::Slots);
        for (va, slot) in [
            (PAGE, SLOT),
            (READ_ONLY, 2),
            (OUTLIER, 3),
            (ABSENT, 4),
            (UNSERVED, 5),
        ] {
            let region = Region::containing(va, 2).expect("order 2 is a region's");
            assert!(directory.assign(region, slot)?.is_empty());
        }
        self.bed
            .responder
            .set_identity(memory(0).ipv4, SWITCH.ipv4)?;
        Ok(())
    }

    /// What cases change: as it was.
    pub fn reset(&mut self) {
        self.try_reset().expect("the tables can be reset");
    }

    fn try_reset(&mut self) -> anyhow::Result<()> {
        let switch = &mut self.bed.switch;
        switch.set_identity(SWITCH.ipv4, SWITCH.mac)?;
        switch.place(DOMAIN, blades([0, 1, 2, 3]))?;
        switch.place(UNPERMITTED, blades([1]))?;
        for (base, shift, bits) in [
            (PAGE, 20, EVERYTHING),
            (READ_ONLY, 20, MAY_READ),
            (BLOCKLESS, 21, EVERYTHING),
            (ABSENT, 21, EVERYTHING),
            (UNSERVED, 21, EVERYTHING),
        ] {
            switch.protect(DOMAIN, Prefix { base, shift }, Permission { bits })?;
        }
        let slice = Prefix {
            base: PAGE,
            shift: SLICE_SHIFT,
        };
        switch.translate(slice, Translation::new(0, PAGE, OFFSET))?;
        for (slot, va) in [
            (SLOT, PAGE),
            (2, READ_ONLY),
            (3, OUTLIER),
            (4, ABSENT),
            (5, UNSERVED),
        ] {
            let region = Region::containing(va, 2).expect("order 2 is a region's");
            let word = Word::new(State::Invalid, blade(0), Episode::new(10), BladeSet::EMPTY);
            let slot = switch.directory().slot(slot)?;
            slot.reset(Slot::new(word, region));
        }
        for number in 0..COMPUTE_BLADES {
            self.set_compute(number, true);
            let mut port = Port::compute(Connection {
                blade: blade(number),
                incarnation: INCARNATION,
            });
            port.flags = PORT_FANS_OUT;
            let ifindex = self.port(number);
            self.bed.switch.set_port(ifindex, port)?;
        }
        for number in 0..MEMORY_BLADES {
            let ifindex = self.memory_port(number);
            let peer = peer(memory(number), ifindex, 0);
            self.bed.switch.set_memory(number, peer)?;
            self.bed.switch.set_port(ifindex, Port::memory(number))?;
        }
        self.bed.responder.clear_operations()?;
        for page in 0..4 {
            let store = self.bed.responder.store();
            store.write(page, &pattern(page as u8))?;
            store.set_tag(page, PageTag::settled(Version::new(10)))?;
        }
        for tap in &mut self.network.taps {
            tap.sent();
        }
        Ok(())
    }

    /// Sets whether compute blade `number` is present.
    pub fn set_compute(&mut self, number: u8, there: bool) {
        let peer = if there {
            peer(compute(number), self.port(number), qp(number))
        } else {
            Peer::default()
        };
        self.bed
            .switch
            .set_compute(blade(number), peer)
            .expect("a peer can be set");
    }

    /// Sets compute blade `number` behind an interface that is none of the devices.
    pub fn misplace_compute(&mut self, number: u8) {
        let peer = peer(compute(number), 60, qp(number));
        self.bed
            .misplace_compute(blade(number), peer)
            .expect("a peer can be set");
    }

    /// Sets whether TC is attached to compute blade `number`'s port.
    pub fn set_fans_out(&mut self, number: u8, fans_out: bool) {
        let port = self.port(number);
        self.bed
            .switch
            .set_fans_out(port, fans_out)
            .expect("the port can be set");
    }

    /// Makes the switch hand packets for several blades that come in at compute blade `number`'s port over instead of
    /// passing them up.
    pub fn hand_over(&mut self, number: u8) -> Copies {
        let port = self.port(number);
        let switch = &mut self.bed.switch;
        switch
            .set_fans_out(port, false)
            .and_then(|()| switch.set_hands_over(port, true))
            .expect("the port can be set");
        switch.open_copies().expect("maps can be opened again")
    }

    /// Sets which packets are traced.
    pub fn trace(&mut self, tracing: mind_common::trace::Tracing) {
        let control = self.bed.switch.open_trace_control();
        let mut control = control.expect("maps can be opened again");
        control.set(tracing).expect("an array can be set");
    }

    /// The slot of [`PAGE`].
    pub fn slot(&self) -> SlotHandle<'_> {
        self.bed
            .switch
            .directory()
            .slot(SLOT)
            .expect("the slot is there")
    }

    /// The word of [`PAGE`].
    pub fn word(&self) -> Word {
        self.slot().word()
    }

    /// Makes the word of [`PAGE`] this, in episode 10.
    pub fn set_word<const N: usize>(&self, state: State, numbers: [u8; N]) {
        self.set_busy(state, 0, numbers);
    }

    /// Makes the word of [`PAGE`] a locked one, in episode 11.
    pub fn set_held<const N: usize>(&self, was: Prior, numbers: [u8; N]) {
        self.set_word(State::Invalid, []);
        let before = self.word();
        let held = before.locked(was, blades(numbers));
        self.slot()
            .swap_word(before, held)
            .expect("nothing else changes the word");
    }

    /// Makes the word of [`PAGE`] this, for `requester`, in episode 10.
    pub fn set_busy<const N: usize>(&self, state: State, requester: u8, numbers: [u8; N]) {
        let slot = self.slot();
        let word = Word::new(state, blade(requester), Episode::new(10), blades(numbers));
        slot.swap_word(slot.word(), word)
            .expect("nothing else changes the word");
    }

    /// Makes the word of the slot `slot` this, in episode 10.
    pub fn set_word_of<const N: usize>(&self, slot: u32, state: State, numbers: [u8; N]) {
        let slot = self.bed.switch.directory().slot(slot).expect("a slot");
        let word = Word::new(state, blade(0), Episode::new(10), blades(numbers));
        slot.swap_word(slot.word(), word)
            .expect("nothing else changes the word");
    }

    /// Sends `packet` into compute blade `number`'s port.
    pub fn send(&mut self, number: u8, packet: &Packet) -> Run<XdpAction> {
        self.send_at(self.port(number), packet)
    }

    /// Sends `packet` into memory blade `number`'s port.
    pub fn send_from_memory(&mut self, number: u8, packet: &Packet) -> Run<XdpAction> {
        self.send_at(self.memory_port(number), packet)
    }

    /// Sends `packet` into the interface `ifindex`, and checks what must hold of any.
    pub fn send_at(&mut self, ifindex: u32, packet: &Packet) -> Run<XdpAction> {
        let run = self.bed.ingress(ifindex, packet.bytes());
        let run = run.expect("the kernel runs the program");
        self.met(&run, packet, XdpAction::Redirect);
        run
    }

    /// Sends `packet` into compute blade `number`'s port `times` times; the verdicts.
    pub fn send_often(&mut self, number: u8, packet: &Packet, times: u32) -> PacketCounters {
        let port = self.port(number);
        let mut headers = Headers::default();
        headers.0.copy_from_slice(&packet.bytes()[..HEADERS_LEN]);
        let template = Template {
            headers,
            // No slot: only the frame is put back between the runs.
            slot: u32::MAX,
            ..Template::default()
        };
        let switch = &self.bed.switch;
        let before = switch
            .packet_counters(port)
            .expect("the counters can be read");
        self.bed
            .set_template(template)
            .expect("a template can be set");
        self.bed
            .time("mind_bench_staged", port, packet.bytes(), times)
            .expect("the kernel runs the program");
        let switch = &self.bed.switch;
        let after = switch
            .packet_counters(port)
            .expect("the counters can be read");
        let counted = after.since(&before);
        self.met.extend(counted.iter().map(|(verdict, _)| verdict));
        counted
    }

    /// Sends `packet` to the memory blade, and checks what must hold of any.
    pub fn serve(&mut self, packet: &Packet) -> Run<XdpAction> {
        let run = self.bed.respond(Self::NO_PORT, packet.bytes());
        let run = run.expect("the kernel runs the program");
        self.met(&run, packet, XdpAction::Tx);
        run
    }

    /// Hands `frame` to TC on compute blade `number`'s port.
    pub fn hand_to_tc(&mut self, number: u8, frame: &[u8], tagged: bool) -> (i32, Option<Verdict>) {
        let port = self.port(number);
        let run = self.bed.fan_out(port, frame, tagged);
        let (action, verdict) = run.expect("the kernel runs the program");
        self.met.extend(verdict);
        (action, verdict)
    }

    /// The frames of ours that were sent to compute blade `number`.
    pub fn sent_to(&mut self, number: u8) -> Vec<Seen> {
        let frames = self.network.taps[usize::from(number)].sent();
        let ours = |frame: &Vec<u8>| frame.get(12..14) == Some(&[8, 0]);
        frames.into_iter().filter(ours).map(Seen::new).collect()
    }

    /// The frame must be as the verdict says; a frame that goes back has the action `back`.
    fn met(&mut self, run: &Run<XdpAction>, packet: &Packet, back: XdpAction) {
        self.met.insert(run.verdict);
        let verdict = run.verdict;
        let action = match verdict.kind() {
            Kind::Passed => XdpAction::Pass,
            Kind::Forwarded if verdict == Verdict::PassedUp => XdpAction::Pass,
            Kind::Forwarded => XdpAction::Redirect,
            Kind::Answered | Kind::Refused(_) => back,
            Kind::Consumed | Kind::Dropped => XdpAction::Drop,
        };
        assert_eq!(run.action, action, "the action of {verdict}");
        let (before, after) = (packet.bytes(), run.frame.bytes());
        assert_eq!(before.len(), after.len(), "{verdict} changed the length");
        match run.action {
            XdpAction::Tx | XdpAction::Redirect => {
                assert!(run.frame.has_right_checksum(), "{verdict}: IPv4 checksum");
                assert!(run.frame.has_lowered_ttl(), "{verdict}: time to live");
                assert!(run.frame.has_right_lengths(), "{verdict}: lengths");
                assert!(run.frame.has_right_ports(), "{verdict}: UDP ports");
            }
            XdpAction::Pass if verdict == Verdict::Foreign => {
                assert_eq!(before, after, "a foreign frame must be left alone");
            }
            XdpAction::Pass | XdpAction::Drop | XdpAction::Aborted => {}
        }
    }
}

fn peer(host: Host, ifindex: u32, connection: u32) -> Peer {
    Peer {
        ipv4: host.ipv4.octets(),
        mac: host.mac,
        flags: PEER_PRESENT,
        ifindex,
        connection,
    }
}

/// What is asked of a run's outcome.
pub trait Expect {
    /// It met `verdict`.
    fn met(&self, verdict: Verdict) -> &Self;
    /// It went on to `host`, in the switch's name, under `seq` on the connection `qp`; the message.
    fn to(&self, host: Host, qp: u32, seq: u32) -> Body<&Page>;
    /// It tells the requester that its request caused this transition.
    fn by(&self, path: Transition) -> &Self;
    /// It was lost on purpose.
    fn lost(&self);
    /// It came back to `host` as the refusal of request 1.
    fn refused(&self, host: Host, refusal: Refusal);
}

impl Expect for Run<XdpAction> {
    #[track_caller]
    fn met(&self, verdict: Verdict) -> &Self {
        assert_eq!(self.verdict, verdict);
        self
    }

    #[track_caller]
    fn to(&self, host: Host, qp: u32, seq: u32) -> Body<&Page> {
        assert_eq!(self.frame.to(), host, "the frame went elsewhere");
        let Datagram {
            envelope,
            body: message,
        } = self.frame.datagram().expect("a message that blades get");
        assert_eq!(envelope.qp, qp, "connection");
        assert_eq!(envelope.seq, Seq::new(seq), "sequence number");
        message
    }

    #[track_caller]
    fn by(&self, path: Transition) -> &Self {
        let Datagram { envelope, .. } = self.frame.datagram().expect("a message that blades get");
        assert_eq!(Transition::from_u8(envelope.attempt), Some(path), "path");
        self
    }

    #[track_caller]
    fn lost(&self) {
        self.met(Verdict::LostOnPurpose);
        assert_eq!(self.action, XdpAction::Drop);
    }

    #[track_caller]
    fn refused(&self, host: Host, refusal: Refusal) {
        assert_eq!(self.verdict.kind(), Kind::Refused(refusal));
        assert_eq!(self.frame.to(), host, "a refusal goes back");
        let Datagram {
            envelope,
            body: message,
        } = self.frame.datagram().expect("a refusal is a message");
        assert_eq!(envelope.seq, Seq::new(1));
        let expected = Body::Acknowledge {
            syndrome: Syndrome::Refused(refusal),
            version: Version::new(0),
        };
        assert_eq!(message, expected);
    }
}
