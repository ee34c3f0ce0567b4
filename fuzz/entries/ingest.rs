//! An agent's messages to what is held: no stream makes the collector panic, and however much comes,
//! it holds no more than its bounds.

use keelson_collector::{
    core::Core,
    ingest::convert::{self, Dictionary},
    store::Bounds,
};
use keelson_model::UnixNanos;
use keelson_proto::telemetry::{AgentMessage, agent_message::Message};
use prost::Message as _;

/// The collector's clock: the windows of seeds lie about here.
const NOW: UnixNanos = UnixNanos(350_000_000 * 5_000_000_000 + 5_100_000_000);
const BOUNDS: Bounds = Bounds { windows: 4, flows: 256 };

/// Messages, each after its length (protobuf's delimited form).
pub fn run(mut bytes: &[u8]) {
    let mut core = Core::new(BOUNDS, NOW);
    let mut stream = None;
    let mut now = NOW;
    while !bytes.is_empty() {
        let Ok(message) = AgentMessage::decode_length_delimited(&mut bytes) else { return };
        match message.message {
            Some(Message::Hello(hello)) => {
                let Ok(agent) = convert::agent(hello) else { return };
                let dictionary = Dictionary::new(agent.node.clone());
                let Ok(handle) = core.connect(agent) else { return };
                stream = Some((handle, dictionary));
            }
            Some(Message::Batch(batch)) => {
                let Some((handle, dictionary)) = &stream else { return };
                let Ok(batch) = dictionary.batch(batch) else { return };
                let _ = core.take(handle, batch, now);
            }
            None => return,
        }
        now = UnixNanos(now.0 + 1_000_000_000);
        core.tick(std::iter::empty(), now);
        assert!(core.store.rows_held() <= BOUNDS.flows);
        assert!(core.store.windows_held() <= BOUNDS.windows + 2);
    }
}
