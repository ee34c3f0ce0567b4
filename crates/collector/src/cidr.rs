//! Address ranges, for filters and for the nodes' pod ranges.
//!
//! Small enough to own: parsing is strict (host bits are allowed and ignored), IPv4 mapped into
//! IPv6 means IPv4 everywhere.

use std::{net::IpAddr, str::FromStr};

/// A range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix_bits: u8,
}

/// The text is neither an address nor `address/bits`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither an address nor a CIDR such as 10.0.0.0/8")]
pub struct CidrError {
    text: String,
}

// === impl Cidr ===

impl Cidr {
    /// Whether `address` lies in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        masked(address.to_canonical(), self.prefix_bits) == Some(self.network)
    }

    /// The first two addresses: what a node's bridge or tunnel takes of its pod range.
    #[must_use]
    pub fn first_two(&self) -> [IpAddr; 2] {
        let next = match self.network {
            IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().wrapping_add(1).into()),
            IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().wrapping_add(1).into()),
        };
        [self.network, next]
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        parse(text).ok_or_else(|| CidrError { text: text.chars().take(64).collect() })
    }
}

fn parse(text: &str) -> Option<Cidr> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let given: IpAddr = address.parse().ok()?;
    let address = given.to_canonical();
    let width = if address.is_ipv4() { 32 } else { 128 };
    // `::ffff:10.0.0.0/104` is 10.0.0.0/8: the mapping's 96 bits are not the range's.
    let mapping_bits = if given.is_ipv6() && address.is_ipv4() { 96 } else { 0 };
    let prefix_bits = match bits {
        None => width,
        Some(bits) => bits.checked_sub(mapping_bits)?,
    };
    Some(Cidr { network: masked(address, prefix_bits)?, prefix_bits })
}

/// The address without its host bits; none when the family has not so many bits.
fn masked(address: IpAddr, prefix_bits: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            let host_bits = 32_u32.checked_sub(u32::from(prefix_bits))?;
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(IpAddr::V4((v4.to_bits() & mask).into()))
        }
        IpAddr::V6(v6) => {
            let host_bits = 128_u32.checked_sub(u32::from(prefix_bits))?;
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(IpAddr::V6((v6.to_bits() & mask).into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_addresses_and_no_others() {
        const ROWS: &[(&str, &str, bool)] = &[
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.2.3/16", "10.1.0.1", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("10.1.0.0/16", "::ffff:10.1.0.1", true),
            ("::ffff:10.0.0.0/104", "10.200.0.1", true),
        ];
        for (range, address, inside) in ROWS {
            let cidr: Cidr = range.parse().unwrap();
            assert_eq!(cidr.contains(address.parse().unwrap()), *inside, "{range} {address}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused_with_its_text() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129", "::ffff:10.0.0.0/8", "a"]
        {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn a_bridge_takes_the_first_addresses_of_its_range() {
        let cidr: Cidr = "10.244.3.0/24".parse().unwrap();
        let expected: [IpAddr; 2] = ["10.244.3.0".parse().unwrap(), "10.244.3.1".parse().unwrap()];
        assert_eq!(cidr.first_two(), expected);
    }
}
