//! Parts of windows to the wire, each pod named once in the part's dictionary. Pure.

use std::collections::HashMap;

use keelson_model::PodUid;
use keelson_proto::{convert, telemetry as wire};

use crate::{enrich::Local, export::outbox::Part};

/// The message of one part.
#[must_use]
pub fn batch(part: &Part) -> wire::Batch {
    let mut pods = Dictionary::default();
    let window = &part.window;
    let series = window.series.iter();
    let series = series
        .map(|row| convert::series_to_wire(pods.local(&row.local), &row.key, &row.value))
        .collect();
    let records = window.records.iter();
    let records = records
        .map(|row| wire::ConnectionRecord {
            local: Some(pods.local(&row.local)),
            ..convert::record_to_wire(&row.record)
        })
        .collect();
    let ledgers = window.ledgers.iter();
    wire::Batch {
        number: part.number,
        window: window.id.0,
        baseline: part.is_baseline,
        clock: Some(convert::clock_to_wire(window.clock)),
        series,
        records,
        ledgers: ledgers.map(|row| convert::ledger_to_wire(&row.probe, &row.cut)).collect(),
        coverage: Some(convert::coverage_to_wire(&window.coverage)),
        pods: pods.pods,
        last_part: part.is_last,
    }
}

#[derive(Default)]
struct Dictionary {
    pods: Vec<wire::Pod>,
    index: HashMap<PodUid, u32>,
}

impl Dictionary {
    fn local(&mut self, local: &Local) -> wire::Local {
        match local {
            Local::Pod { pod, container } => {
                let next = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
                let index = *self.index.entry(pod.uid.clone()).or_insert_with(|| {
                    self.pods.push(convert::pod_to_wire(pod));
                    next
                });
                wire::Local {
                    local: Some(wire::local::Local::Pod(index)),
                    container_id: container.as_deref().unwrap_or_default().to_owned(),
                }
            }
            Local::Unknown(reason) => {
                let reason = convert::unknown_reason_to_wire(*reason).into();
                let local = Some(wire::local::Local::Unknown(reason));
                wire::Local { local, container_id: String::new() }
            }
        }
    }
}
