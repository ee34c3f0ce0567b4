//! Series: cumulative values by key. The local side's name travels beside them, in the dictionary.

use keelson_model::{BootNanos, CgroupId, Remote, SeriesKey, SeriesValue};

use super::{
    ConvertError, Problem, address_from_wire, address_to_wire, counters_from_wire,
    counters_to_wire, direction_from_wire, direction_to_wire, port_from_wire,
};
use crate::telemetry as wire;

/// A series with its local side as the dictionary has it.
#[must_use]
pub fn series_to_wire(local: wire::Local, key: &SeriesKey, value: &SeriesValue) -> wire::Series {
    let (remote_address, other) = match key.remote {
        Remote::Address(address) => (address_to_wire(address), false),
        Remote::Other => (Vec::new(), true),
    };
    wire::Series {
        local: Some(local),
        direction: direction_to_wire(key.direction).into(),
        remote_address,
        port: key.port.into(),
        other,
        start_boot_ns: value.start.0,
        cgroup_id: key.cgroup.0,
        counters: Some(counters_to_wire(&value.counters)),
    }
}

/// Key and value of a series; its `local` is the caller's to look up.
///
/// # Errors
/// A field that cannot be.
pub fn series_from_wire(series: &wire::Series) -> Result<(SeriesKey, SeriesValue), ConvertError> {
    let remote = if series.other {
        Remote::Other
    } else {
        Remote::Address(address_from_wire(&series.remote_address, "series.remote_address")?)
    };
    let key = SeriesKey {
        cgroup: CgroupId(series.cgroup_id),
        direction: direction_from_wire(series.direction)?,
        remote,
        port: port_from_wire(series.port, "series.port")?,
    };
    let counters = series.counters.ok_or(Problem::Missing.at("series.counters"))?;
    let counters = counters_from_wire(counters);
    Ok((key, SeriesValue { start: BootNanos(series.start_boot_ns), counters }))
}
