//! The blade's datagram socket: messages of the protocol out and in, without waiting.

use mind_common::addr::Page;
use std::{
    io::IoSlice,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result};
use mind_common::wire::{MAX_LEN, Malformed, PAGELESS_LEN, UDP_PORT};
use mind_machines::datagram::Datagram;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
    },
};

/// Room for what arrives while the engine is not looking: every sharer's answer at once, and more.
const RECEIVE_BUFFER: usize = 8 << 20;

/// What a message is padded with.
static PADDING: [u8; MAX_LEN] = [0; MAX_LEN];

/// A socket that talks to the switch, and to nobody else.
pub(super) struct Datagrams {
    fd: OwnedFd,
    /// Datagrams that could not be sent: the queue was full. As good as lost on the way.
    pub(super) unsent: u64,
}

/// A datagram as it came.
pub(super) struct Received {
    bytes: [u8; MAX_LEN],
    len: usize,
    /// Whether it was longer than what was taken of it.
    pub(super) is_cut: bool,
}

impl Received {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; MAX_LEN],
            len: 0,
            is_cut: false,
        }
    }

    /// What it says.
    pub(super) fn parse(&self) -> Result<Datagram<&Page>, Malformed> {
        Datagram::parse(&self.bytes[..self.len])
    }
}

impl Datagrams {
    /// Binds to the RoCEv2 port of the blade's address.
    pub(super) fn bind(own: Ipv4Addr, switch: Ipv4Addr) -> Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .context("cannot make a UDP socket")?;
        let address = SocketAddrV4::new(own, UDP_PORT);
        rustix::net::bind(&fd, &address)
            .with_context(|| format!("cannot bind to {address}: is another blade running here?"))?;
        // Connected, the kernel looks the way to the switch up once, and not for every datagram; and nobody else can
        // send anything to this socket.
        let switch = SocketAddrV4::new(switch, UDP_PORT);
        rustix::net::connect(&fd, &switch)
            .with_context(|| format!("there is no way to the switch at {switch}"))?;
        mind_dataplane::checksum::leave_out(&fd).context("cannot switch UDP checksums off")?;
        if sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER)
                .context("cannot set the receive buffer's size")?;
        }
        Ok(Self { fd, unsent: 0 })
    }

    /// Sends a datagram. What cannot be sent now is counted and lost, as on the way.
    pub(super) fn send(&mut self, datagram: &Datagram<&Page>) {
        let (headers, page) = datagram.emit();
        let headers = headers.as_bytes();
        // What is not page is padding.
        let rest = match page {
            Some(page) => &page[..],
            None => &PADDING[..datagram.body.wire_len().saturating_sub(headers.len())],
        };
        let parts = [IoSlice::new(headers), IoSlice::new(rest)];
        let mut earlier = true;
        let sent = loop {
            let sent = rustix::net::sendmsg(
                &self.fd,
                &parts,
                &mut SendAncillaryBuffer::default(),
                SendFlags::empty(),
            );
            match sent {
                Err(Errno::INTR) => {}
                // An ICMP error of an earlier datagram; it was taken by this, and nothing was sent.
                Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) if earlier => {
                    earlier = false;
                }
                sent => break sent,
            }
        };
        if let Err(errno) = sent {
            self.unsent += 1;
            tracing::debug!(%errno, opcode = ?datagram.body.opcode(), "a datagram was not sent");
        }
    }

    /// Takes a datagram, if one is there; of a long one only the headers, unless it may bring a page that somebody
    /// waits for: most of what comes is padding, and copying it takes as long as all the rest of receiving.
    pub(super) fn receive(&self, into: &mut Received, with_page: bool) -> bool {
        let room = if with_page { MAX_LEN } else { PAGELESS_LEN };
        loop {
            match rustix::net::recv(&self.fd, &mut into.bytes[..room], RecvFlags::TRUNC) {
                Ok((taken, len)) => {
                    into.len = taken;
                    into.is_cut = len > taken;
                    return true;
                }
                // An ICMP error of an earlier datagram; it was taken by this.
                Err(Errno::INTR | Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
