//! A capture of the network of a world, as a file of the format pcap: Ethernet, IPv4 and TCP, as if
//! taken where each segment arrives. Readers find the protocols by the ports.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fabrix_rt::Nanos;

/// The file, and how far each direction of each connection is.
#[derive(Debug)]
pub(crate) struct Capture {
    file: Vec<u8>,
    /// Sequence number of the next byte from the first address to the second.
    next: BTreeMap<(SocketAddr, SocketAddr), u32>,
}

/// What a segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment<'a> {
    /// The request to connect, or its answer.
    Syn,
    /// Bytes of the stream. None: an acknowledgement.
    Bytes(&'a [u8]),
    /// The end of the stream.
    Fin,
    /// A reset.
    Rst,
}

impl Default for Capture {
    fn default() -> Self {
        let mut file = Vec::new();
        file.extend(MAGIC_NANOSECONDS.to_le_bytes());
        file.extend([2, 0, 4, 0]); // version 2.4
        file.extend([0; 8]); // times are UTC and exact
        file.extend(SNAP_BYTES.to_le_bytes());
        file.extend(LINK_ETHERNET.to_le_bytes());
        Self {
            file,
            next: BTreeMap::new(),
        }
    }
}

impl Capture {
    /// The bytes of the file.
    pub(crate) fn file(&self) -> &[u8] {
        &self.file
    }

    /// Adds a segment. Segments between addresses of IPv6 are left out: no world has them.
    pub(crate) fn add(
        &mut self,
        at: Nanos,
        from: SocketAddr,
        to: SocketAddr,
        segment: Segment<'_>,
    ) {
        let bytes = match segment {
            Segment::Bytes(bytes) => bytes,
            Segment::Syn | Segment::Fin | Segment::Rst => &[],
        };
        // An IPv4 packet has 16 bits for its length.
        let (first, rest) = bytes.split_at(bytes.len().min(SEGMENT_MAX));
        self.add_packet(at, (from, to), segment, first);
        if !rest.is_empty() {
            self.add(at, from, to, Segment::Bytes(rest));
        }
    }

    fn add_packet(
        &mut self,
        at: Nanos,
        (from, to): (SocketAddr, SocketAddr),
        segment: Segment<'_>,
        bytes: &[u8],
    ) {
        let (IpAddr::V4(source), IpAddr::V4(target)) = (from.ip(), to.ip()) else {
            return;
        };
        let acknowledged = self.next.get(&(to, from)).copied();
        let next = self.next.entry((from, to)).or_default();
        let mut flags = match segment {
            Segment::Syn => SYN,
            Segment::Bytes([]) => 0,
            Segment::Bytes(_) => PSH,
            Segment::Fin => FIN,
            Segment::Rst => RST,
        };
        if acknowledged.is_some() {
            flags |= ACK;
        }
        let mut tcp = Vec::with_capacity(TCP_BYTES + bytes.len());
        tcp.extend(from.port().to_be_bytes());
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(next.to_be_bytes());
        tcp.extend(acknowledged.unwrap_or(0).to_be_bytes());
        tcp.extend([5 << 4, flags]); // a header of five words
        tcp.extend([0xFF, 0xFF, 0, 0, 0, 0]); // window, checksum, urgent pointer
        tcp.extend(bytes);
        let marks = u32::from(matches!(segment, Segment::Syn | Segment::Fin));
        let length = u32::try_from(bytes.len()).expect("a segment is short");
        *next = next.wrapping_add(length + marks);
        let packet = ip_packet(source, target, tcp);
        let captured = u32::try_from(ETHERNET_BYTES + packet.len()).expect("a packet is short");
        for word in [at.0 / NANOS, at.0 % NANOS] {
            let word = u32::try_from(word).expect("a world is younger than a century");
            self.file.extend(word.to_le_bytes());
        }
        self.file.extend(captured.to_le_bytes());
        self.file.extend(captured.to_le_bytes());
        for address in [target, source] {
            self.file.extend([2, 0]); // locally administered
            self.file.extend(address.octets());
        }
        self.file.extend(ETHER_IPV4.to_be_bytes());
        self.file.extend(packet);
    }
}

/// An IPv4 packet with a TCP segment, whose checksum is still zero.
fn ip_packet(source: Ipv4Addr, target: Ipv4Addr, mut tcp: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(tcp.len()).expect("a segment is short");
    let mut pseudo = Vec::with_capacity(12 + tcp.len());
    pseudo.extend(source.octets());
    pseudo.extend(target.octets());
    pseudo.extend([0, PROTOCOL_TCP]);
    pseudo.extend(length.to_be_bytes());
    pseudo.extend(&tcp);
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let whole = u16::try_from(IP_BYTES + tcp.len()).expect("a segment is short");
    let mut packet = vec![0x45, 0]; // version 4, a header of five words
    packet.extend(whole.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]); // do not fragment, 64 hops
    packet.extend(source.octets());
    packet.extend(target.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.append(&mut tcp);
    packet
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u64 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).expect("16 bits")
}

const NANOS: u64 = 1_000_000_000;
/// Times have nanoseconds, and all numbers are little-endian.
const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
const LINK_ETHERNET: u32 = 1;
/// No packet is longer.
const SNAP_BYTES: u32 = 1 << 18;
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const SEGMENT_MAX: usize = 65_535 - IP_BYTES - TCP_BYTES;
const ETHER_IPV4: u16 = 0x0800;
const PROTOCOL_TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The IPv4 packets of a file, after the headers of the file and of Ethernet.
    fn packets(file: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = &file[24..];
        let mut packets = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[8..12].try_into().expect("four")) as usize;
            packets.push(rest[16 + ETHERNET_BYTES..16 + length].to_vec());
            rest = &rest[16 + length..];
        }
        packets
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
    }

    #[test]
    fn sequence_numbers_go_on_and_acknowledge_what_has_arrived() {
        let host = SocketAddr::from(([10, 1, 0, 2], 40_001));
        let target = SocketAddr::from(([10, 0, 0, 1], 4420));
        let mut capture = Capture::default();
        let long = vec![7; SEGMENT_MAX + 5];
        for (from, to, segment) in [
            (host, target, Segment::Syn),
            (target, host, Segment::Syn),
            (host, target, Segment::Bytes(&[])),
            (host, target, Segment::Bytes(&long)),
            (target, host, Segment::Bytes(&[1, 2, 3])),
            (host, target, Segment::Fin),
            (target, host, Segment::Rst),
        ] {
            capture.add(Nanos(1_500_000_000), from, to, segment);
        }
        let packets = packets(capture.file());
        let long = u32::try_from(long.len()).expect("it is short");
        let told: Vec<_> = packets
            .iter()
            .map(|packet| (packet[33], word(packet, 24), word(packet, 28)))
            .collect();
        let most = u32::try_from(SEGMENT_MAX).expect("it is short");
        assert_eq!(
            told,
            [
                (SYN, 0, 0),
                (SYN | ACK, 0, 1),
                (ACK, 1, 1),
                (PSH | ACK, 1, 1),
                (PSH | ACK, 1 + most, 1),
                (PSH | ACK, 1, 1 + long),
                (FIN | ACK, 1 + long, 4),
                (RST | ACK, 4, 2 + long),
            ]
        );
        for packet in packets {
            assert_eq!(checksum(&packet[..IP_BYTES]), 0);
            let length = u16::try_from(packet.len() - IP_BYTES).expect("it is short");
            let pseudo = [&packet[12..20], &[0, PROTOCOL_TCP], &length.to_be_bytes()].concat();
            assert_eq!(checksum(&[&pseudo, &packet[IP_BYTES..]].concat()), 0);
        }
    }
}
