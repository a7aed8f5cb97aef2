//! HMAC-SHA256 (RFC 2104) over any number of pieces, and the comparison that tells nothing of where
//! two tags differ. Rule: a key is never printed, and a tag is never compared by `==`.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a tag.
pub const TAG: usize = 32;

/// Bytes that SHA-256 takes at a time.
const BLOCK: usize = 64;

/// A secret, ready to be used. Every length from one byte on is fine; 32 random bytes are best.
#[derive(Clone)]
pub struct Key {
    inner: Sha256,
    outer: Sha256,
}

/// A tag under way.
#[derive(Clone)]
pub struct Mac {
    inner: Sha256,
    outer: Sha256,
}

impl Key {
    pub fn new(secret: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if secret.len() > BLOCK {
            block[..TAG].copy_from_slice(&Sha256::digest(secret));
        } else {
            block[..secret.len()].copy_from_slice(secret);
        }
        let padded = |pad: u8| Sha256::new_with_prefix(block.map(|byte| byte ^ pad));
        Key { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// The tag of `pieces`, one after the other.
    pub fn tag(&self, pieces: &[&[u8]]) -> [u8; TAG] {
        let mut mac = self.begin();
        pieces.iter().for_each(|piece| mac.update(piece));
        mac.finish()
    }

    /// A tag over bytes that come in pieces.
    pub fn begin(&self) -> Mac {
        Mac { inner: self.inner.clone(), outer: self.outer.clone() }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Mac {
    pub fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    pub fn finish(mut self) -> [u8; TAG] {
        self.outer.update(self.inner.finalize());
        self.outer.finalize().into()
    }
}

/// Whether two tags are the same, in a time that does not depend on their bytes.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The answers of RFC 4231: keys shorter and longer than a block.
    #[test]
    fn tags_are_those_of_the_rfc() {
        let long = [0xaa; 131];
        let cases: [(&[u8], &[u8], &str); 5] = [
            (
                &[0x0b; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 20],
                &[0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
            (
                &long,
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                &long,
                b"This is a test using a larger than block-size key and a larger than block-size \
                  data. The key needs to be hashed before being used by the HMAC algorithm.",
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            ),
        ];
        for (secret, data, expected) in cases {
            let key = Key::new(secret);
            assert_eq!(hex(&key.tag(&[data])), expected);
            let (head, tail) = data.split_at(data.len() / 2);
            assert_eq!(hex(&key.tag(&[head, b"", tail])), expected);
        }
    }

    /// A key of exactly a block is used as it is; every bit of a tag counts.
    #[test]
    fn every_bit_counts() {
        let tag = Key::new(&[7; BLOCK]).tag(&[b"x"]);
        assert!(same(&tag, &Key::new(&[7; BLOCK]).tag(&[b"x"])));
        assert!(!same(&tag, &Key::new(&[7; BLOCK + 1]).tag(&[b"x"])));
        for bit in 0..TAG * 8 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!same(&tag, &other));
        }
    }

    /// What is printed of a key tells nothing.
    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", Key::new(b"secret")), "Key");
    }
}
