//! Where the controller listens: at a TCP address for blades, at a Unix socket for operators of its host.

use std::{
    fmt,
    net::{SocketAddr, SocketAddrV4},
    path::PathBuf,
    str::FromStr,
};

/// The default socket for operators.
pub const DEFAULT_SOCKET: &str = "/run/mind-ctl.sock";

/// Where to reach the controller. Parses from `ADDRESS:PORT` or the path of a socket.
///
/// ```
/// use mind_connection::endpoint::Endpoint;
///
/// assert!(matches!("198.18.0.1:4790".parse(), Ok(Endpoint::Tcp(_))));
/// assert!(matches!("/run/mind-ctl.sock".parse(), Ok(Endpoint::Unix(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// From the blades' network.
    Tcp(SocketAddrV4),
    /// From the switch itself, in any network namespace.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!(
                "`{text}` is neither an address with a port, such as 198.18.0.1:4790, nor the path of a socket, such \
                 as {DEFAULT_SOCKET}"
            )
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl From<SocketAddrV4> for Endpoint {
    fn from(address: SocketAddrV4) -> Self {
        Self::Tcp(address)
    }
}

/// The other end of a connection to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host in the blades' network: a blade, or an operator who calls from there.
    Network(SocketAddr),
    /// A process on the switch that may open its socket.
    Local,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Local => f.write_str("the operators' socket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_or_a_path() {
        for text in ["198.18.0.1:4790", "/run/mind-ctl.sock", "./ctl"] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
        assert_eq!("./ctl".parse(), Ok(Endpoint::Unix(PathBuf::from("./ctl"))));
        for wrong in ["", "198.18.0.1", "ctl", "198.18.0.1:99999"] {
            let error = wrong.parse::<Endpoint>().unwrap_err();
            assert!(error.contains("is neither"), "{error}");
        }
    }
}
