//! The bare network of the fault bench: a switch that sends each port's frames to one other port,
//! and an interface that answers every READ with the same page.

use std::fmt;

use aya::{
    Ebpf,
    programs::{Xdp, XdpMode},
};
use mind_common::table::PageValue;

use super::{
    bed::{XdpAction, run_xdp},
    frame::Seen,
};
use crate::{Error, Result, maps::Maps, object};

const REDIRECT: &str = "mind_bare_redirect";
const ANSWER: &str = "mind_bare_answer";
const DEVICES: &str = "DEVICES";
const PAGES: &str = "PAGES";

/// The bare programs. What is attached is detached when this value goes.
pub struct Bare {
    ebpf: Ebpf,
    maps: Maps,
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bare").finish_non_exhaustive()
    }
}

impl Bare {
    /// Loads the programs, for ports whose interfaces' indices are below `interfaces`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn load(interfaces: u32) -> Result<Self> {
        let mut ebpf = super::object::load(&[(DEVICES, interfaces)])?;
        let maps = Maps::take(&mut ebpf, &[DEVICES, PAGES])?;
        for name in [REDIRECT, ANSWER] {
            object::xdp(&mut ebpf, name)?;
        }
        Ok(Self { ebpf, maps })
    }

    /// Sends what comes in at the interface `from` out of the interface `to`, both of this network
    /// namespace.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, as for an index beyond the limit.
    pub fn connect(&mut self, from: u32, to: u32) -> Result<()> {
        self.maps.set_device(DEVICES, from, to)
    }

    /// Sets the page that every READ is answered with.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_page(&mut self, page: &PageValue) -> Result<()> {
        self.maps.set(PAGES, 0, *page)
    }

    /// Attaches the redirecting program to `interface` of this network namespace.
    ///
    /// # Errors
    ///
    /// When the interface is missing or the driver refuses.
    pub fn attach_redirect(&mut self, interface: &str) -> Result<()> {
        self.attach(REDIRECT, interface)
    }

    /// Attaches the answering program to `interface` of this network namespace. A veth peer must
    /// have a program, too, or it does not receive the answers.
    ///
    /// # Errors
    ///
    /// When the interface is missing or the driver refuses.
    pub fn attach_answer(&mut self, interface: &str) -> Result<()> {
        self.attach(ANSWER, interface)
    }

    fn attach(&mut self, name: &'static str, interface: &str) -> Result<()> {
        let xdp: &mut Xdp = object::xdp(&mut self.ebpf, name)?;
        // The link stays with the program.
        match xdp.attach(interface, XdpMode::Driver) {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Attach {
                program: name,
                interface: interface.to_owned(),
                reason: error.to_string(),
                hint: "",
            }),
        }
    }

    /// Runs the redirecting program on `frame`, come in at the interface `ifindex`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the run.
    pub fn redirect(&mut self, ifindex: u32, frame: &[u8]) -> Result<(XdpAction, Seen)> {
        let xdp = object::xdp(&mut self.ebpf, REDIRECT)?;
        run_xdp(REDIRECT, xdp, ifindex, frame)
    }

    /// Runs the answering program on `frame`, come in at the interface `ifindex`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the run.
    pub fn answer(&mut self, ifindex: u32, frame: &[u8]) -> Result<(XdpAction, Seen)> {
        let xdp = object::xdp(&mut self.ebpf, ANSWER)?;
        run_xdp(ANSWER, xdp, ifindex, frame)
    }
}
