//! Bytes of the kernel to the model: no bytes make it panic.

/// The first byte chooses what the rest is taken for.
pub fn run(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    if choice % 2 == 0 {
        let _ = keelson_abi::decode(rest);
    } else {
        let (key, value) = rest.split_at(rest.len().min(32));
        let _ = keelson_abi::decode_series(key, value);
    }
}
