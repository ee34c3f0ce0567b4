use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::*;

fn header(kind: u16) -> TcpHeader {
    TcpHeader { kind, version: layout::VERSION, cgroup_id: 7, ..TcpHeader::new_zeroed() }
}

fn record() -> TcpRecord {
    let mut remote = [0; 16];
    remote[..4].copy_from_slice(&[10, 0, 0, 9]);
    TcpRecord {
        header: TcpHeader { cpu: 1, sequence: 5, boot_ns: 99, ..header(layout::KIND_CONNECTION) },
        event: layout::EVENT_CLOSED,
        direction: layout::OUTBOUND,
        family: layout::AF_INET,
        state: layout::STATE_ISN_VALID,
        established_ns: 42,
        client_isn: 1,
        server_isn: 2,
        remote_port: 443,
        bytes_sent: 100,
        total_retrans: 3,
        keep: 9,
        remote,
        ..TcpRecord::new_zeroed()
    }
}

#[test]
fn a_record_is_read_with_the_padding_of_a_perf_buffer_behind_it() {
    let mut bytes = record().as_bytes().to_vec();
    bytes.extend([0xff; 4]);
    let Ok(Event::Connection(decoded)) = decode(&bytes) else { panic!("no connection") };
    assert_eq!((decoded.cpu, decoded.sequence, decoded.end), (1, 5, BootNanos(99)));
    assert_eq!(decoded.remote_address, IpAddr::from([10, 0, 0, 9]));
    assert_eq!(decoded.isn, Some(IsnPair { client: 1, server: 2 }));
    assert_eq!(decoded.counters.retransmitted_segments, 3);
    assert_eq!((decoded.counters.opened, decoded.counters.closed), (1, 1));
    assert!(decoded.keep_reasons.by_rule());
}

#[test]
fn a_cgroups_name_ends_at_its_zero() {
    let mut name = [0; 128];
    name[..4].copy_from_slice(b"pod1");
    let header = header(layout::KIND_CGROUP_MADE);
    let record = TcpCgroupRecord { header, parent_id: 3, level: 2, pad: 0, name };
    let made = Event::CgroupMade { cgroup: CgroupId(7), parent: CgroupId(3), name: "pod1".into() };
    assert_eq!(decode(record.as_bytes()), Ok(made));
}

#[test]
fn what_is_no_record_says_why() {
    let bytes = record().as_bytes().to_vec();
    assert!(matches!(decode(&bytes[..100]), Err(DecodeError::Short { what: "record", .. })));
    assert!(matches!(decode(&[]), Err(DecodeError::Short { what: "header", .. })));
    let mut other = record();
    other.header.version = 9;
    assert_eq!(decode(other.as_bytes()), Err(DecodeError::Version(9)));
    let mut other = record();
    other.event = 9;
    let error = decode(other.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "event has the unknown number 9");
}

#[test]
fn a_series_that_is_being_made_is_none_yet() {
    let key = TcpSeriesKey { direction: layout::INBOUND, ..TcpSeriesKey::new_zeroed() };
    let mut value = TcpSeriesValue::new_zeroed();
    assert_eq!(decode_series(key.as_bytes(), value.as_bytes()), Ok(None));
    value.start_ns = 4;
    value.opened = 2;
    let (key, value) = decode_series(key.as_bytes(), value.as_bytes()).unwrap().unwrap();
    assert_eq!((key.remote, value.start, value.counters.opened), (Remote::Other, BootNanos(4), 2));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u16..5) {
        let _ = decode(&bytes);
        let _ = decode_series(&bytes, &bytes);
        let mut known = bytes;
        if let Some(start) = known.get_mut(..4) {
            start[..2].copy_from_slice(&kind.to_ne_bytes());
            start[2..].copy_from_slice(&layout::VERSION.to_ne_bytes());
        }
        let _ = decode(&known);
    }
}
