//! The programs on the test bed: run on one frame at a time by the kernel (`BPF_PROG_TEST_RUN`),
//! as if it had come in at a given port.

use aya::{
    Ebpf, TestRun as _,
    programs::{SchedClassifier, TestRunOptions, Xdp},
};
use mind_common::{
    id::BladeId,
    table::{Peer, Template},
    verdict::Verdict,
};
use zerocopy::IntoBytes as _;

use super::frame::Seen;
use crate::{
    Error, PacketCounters, Responder, Result, Switch,
    maps::Maps,
    object::{self, program},
};

/// What an XDP program returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAction {
    /// Something went wrong in the program.
    Aborted,
    /// The frame ends here.
    Drop,
    /// The host's stack gets it.
    Pass,
    /// It goes back through the port it came in at.
    Tx,
    /// It goes on through another port.
    Redirect,
}

/// What became of a frame.
#[derive(Clone, Debug)]
pub struct Run<A> {
    /// What the program returned.
    pub action: A,
    /// The verdict that it counted.
    pub verdict: Verdict,
    /// The frame as the program left it.
    pub frame: Seen,
}

/// A switch and a memory blade, loaded and attached nowhere.
pub struct Bed {
    /// The switch.
    pub switch: Switch,
    /// The memory blade.
    pub responder: Responder,
    /// The programs that call the switch's and the memory blade's.
    stages: Ebpf,
    /// Their maps.
    stage_maps: Maps,
}

const TEMPLATE: &str = "TEMPLATE";
const XDP_STAGE: &str = "XDP_STAGE";
const RESPONDER_STAGE: &str = "RESPONDER_STAGE";
const TC_STAGE: &str = "TC_STAGE";

/// Larger than any frame.
const OUTPUT: usize = 12 << 10;

/// `struct xdp_md`, as the kernel takes it for a test run.
#[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct XdpMd {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

/// The beginning of `struct __sk_buff`, up to the device.
#[derive(Default, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct SkBuff {
    unused: [u32; 10],
    ifindex: u32,
}

impl Bed {
    /// A test bed of `switch` and `responder`, with the programs that call theirs.
    ///
    /// # Errors
    ///
    /// When the kernel refuses one of them.
    pub fn new(mut switch: Switch, mut responder: Responder) -> Result<Self> {
        let mut stages = super::object::load_beside(switch.maps(), responder.maps())?;
        let names = [TEMPLATE, XDP_STAGE, RESPONDER_STAGE, TC_STAGE];
        let mut stage_maps = Maps::take(&mut stages, &names)?;
        let ebpf = own(&mut switch)?;
        let xdp = object::xdp(ebpf, program::SWITCH)?;
        stage_maps.set_stage(XDP_STAGE, fd(program::SWITCH, xdp.fd())?)?;
        let served = fd(program::RESPONDER, responder.xdp()?.fd())?;
        stage_maps.set_stage(RESPONDER_STAGE, served)?;
        let tc = object::classifier(ebpf, program::FAN_OUT)?;
        stage_maps.set_stage(TC_STAGE, fd(program::FAN_OUT, tc.fd())?)?;
        Ok(Self {
            switch,
            responder,
            stages,
            stage_maps,
        })
    }

    /// Runs the switch's XDP program on `frame`, come in at the port `ifindex`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the run.
    pub fn ingress(&mut self, ifindex: u32, frame: &[u8]) -> Result<Run<XdpAction>> {
        let before = self.switch.packet_counters(ifindex)?;
        let xdp = object::xdp(own(&mut self.switch)?, program::SWITCH)?;
        let (action, frame) = run_xdp(program::SWITCH, xdp, ifindex, frame)?;
        let verdict = only(&self.switch.packet_counters(ifindex)?.since(&before));
        Ok(Run {
            action,
            verdict,
            frame,
        })
    }

    /// Runs the switch's XDP program on frames of several ports at the same time: for each port a thread, which sends its
    /// next frame when all are ready to. What was counted at each port.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a run.
    pub fn ingress_at_once(&mut self, ports: &[(u32, Vec<&[u8]>)]) -> Result<Vec<PacketCounters>> {
        let counters = |bed: &Self| -> Result<Vec<PacketCounters>> {
            let ports = ports.iter();
            ports
                .map(|(ifindex, _)| bed.switch.packet_counters(*ifindex))
                .collect()
        };
        let before = counters(self)?;
        let xdp: &Xdp = object::xdp(own(&mut self.switch)?, program::SWITCH)?;
        let ready = std::sync::Barrier::new(ports.len());
        std::thread::scope(|scope| {
            let run = |(ifindex, frames): &(u32, Vec<&[u8]>)| -> Result<()> {
                for frame in frames {
                    ready.wait();
                    run_xdp(program::SWITCH, xdp, *ifindex, frame)?;
                }
                Ok(())
            };
            let threads: Vec<_> = ports
                .iter()
                .map(|port| scope.spawn(move || run(port)))
                .collect();
            let mut threads = threads.into_iter();
            threads.try_for_each(|thread| thread.join().expect("no thread panics"))
        })?;
        let after = counters(self)?;
        let both = after.iter().zip(&before);
        Ok(both.map(|(after, before)| after.since(before)).collect())
    }

    /// Runs the memory blade's program on `frame`, come in at the interface `ifindex`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the run.
    pub fn respond(&mut self, ifindex: u32, frame: &[u8]) -> Result<Run<XdpAction>> {
        let before = self.responder.packet_counters(ifindex)?;
        let (action, frame) = run_xdp(program::RESPONDER, self.responder.xdp()?, ifindex, frame)?;
        let verdict = only(&self.responder.packet_counters(ifindex)?.since(&before));
        Ok(Run {
            action,
            verdict,
            frame,
        })
    }

    /// Runs the switch's TC program on `frame`, come in at the port `ifindex`: its return value,
    /// and the verdict if it counted one. The program really sends: the devices must exist. With
    /// `tagged`, the kernel has taken a VLAN tag off before.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the run.
    pub fn fan_out(
        &mut self,
        ifindex: u32,
        frame: &[u8],
        tagged: bool,
    ) -> Result<(i32, Option<Verdict>)> {
        const TAGGED: &str = "mind_test_tagged";
        let before = self.switch.packet_counters(ifindex)?;
        let (name, tc): (_, &SchedClassifier) = match tagged {
            true => (TAGGED, object::classifier(&mut self.stages, TAGGED)?),
            false => {
                let ebpf = own(&mut self.switch)?;
                (
                    program::FAN_OUT,
                    object::classifier(ebpf, program::FAN_OUT)?,
                )
            }
        };
        let context = SkBuff {
            ifindex,
            ..SkBuff::default()
        };
        let mut output = vec![0; OUTPUT];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut output),
            ctx_in: Some(context.as_bytes()),
            ..TestRunOptions::default()
        };
        let run = tc.test_run(options).map_err(refused(name))?;
        let counted = self.switch.packet_counters(ifindex)?.since(&before);
        let verdict = (counted.iter().next().is_some()).then(|| only(&counted));
        Ok((run.return_value as i32, verdict))
    }

    /// Nanoseconds that the XDP program `name` takes for `frame`, on average over `repeat` runs,
    /// and what the last run returned.
    ///
    /// # Errors
    ///
    /// When there is no such program, or the kernel refuses the run.
    pub fn time(
        &mut self,
        name: &'static str,
        ifindex: u32,
        frame: &[u8],
        repeat: u32,
    ) -> Result<(f64, XdpAction)> {
        let xdp: &Xdp = object::xdp(&mut self.stages, name)?;
        let context = xdp_md(ifindex, frame);
        let options = TestRunOptions {
            data_in: Some(frame),
            ctx_in: Some(context.as_bytes()),
            repeat,
            ..TestRunOptions::default()
        };
        let run = xdp.test_run(options).map_err(refused(name))?;
        Ok((run.duration.as_nanos() as f64, action(run.return_value)))
    }

    /// Sets the compute blade `blade` behind an interface to which nothing can be redirected.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn misplace_compute(&mut self, blade: BladeId, peer: Peer) -> Result<()> {
        self.switch.misplace_compute(blade, peer)
    }

    /// What the bench's programs restore before each run.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_template(&mut self, template: Template) -> Result<()> {
        self.stage_maps.set(TEMPLATE, 0, template)
    }
}

fn own(switch: &mut Switch) -> Result<&mut Ebpf> {
    switch.object().ok_or(Error::Missing {
        name: "object of its own: it was opened from pins",
    })
}

fn fd<'a>(
    name: &'static str,
    fd: std::result::Result<&'a aya::programs::ProgramFd, aya::programs::ProgramError>,
) -> Result<&'a aya::programs::ProgramFd> {
    fd.map_err(refused(name))
}

fn refused(name: &'static str) -> impl FnOnce(aya::programs::ProgramError) -> Error {
    move |source| Error::Program {
        name,
        source: Box::new(source),
    }
}

pub(super) fn run_xdp(
    name: &'static str,
    xdp: &Xdp,
    ifindex: u32,
    frame: &[u8],
) -> Result<(XdpAction, Seen)> {
    let context = xdp_md(ifindex, frame);
    let mut output = vec![0; OUTPUT];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut output),
        ctx_in: Some(context.as_bytes()),
        ..TestRunOptions::default()
    };
    let run = xdp.test_run(options).map_err(refused(name))?;
    output.truncate(run.data_size_out as usize);
    Ok((action(run.return_value), Seen::new(output)))
}

fn xdp_md(ifindex: u32, frame: &[u8]) -> XdpMd {
    XdpMd {
        data: 0,
        data_end: frame.len() as u32,
        data_meta: 0,
        ingress_ifindex: ifindex,
        rx_queue_index: 0,
        egress_ifindex: 0,
    }
}

fn action(value: u32) -> XdpAction {
    match value {
        1 => XdpAction::Drop,
        2 => XdpAction::Pass,
        3 => XdpAction::Tx,
        4 => XdpAction::Redirect,
        _ => XdpAction::Aborted,
    }
}

/// The one verdict that was counted.
fn only(counted: &PacketCounters) -> Verdict {
    let verdicts: Vec<_> = counted.iter().collect();
    match verdicts[..] {
        [(verdict, 1)] => verdict,
        _ => panic!("one frame must be counted once, not {verdicts:?}"),
    }
}
