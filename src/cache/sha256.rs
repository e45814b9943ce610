//! SHA-256 (FIPS 180-4), for the names and checksums of files: who chooses an input cannot choose the name.

/// The first 32 bits of the fractional parts of the square roots of the first primes.
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const ROUND: [u32; 64] = round_constants();

/// Bytes that are worked on together.
const BLOCK: usize = 64;

const fn round_constants() -> [u32; 64] {
    let (mut constants, mut count, mut candidate) = ([0; 64], 0, 2u128);
    while count < 64 {
        let (mut divisor, mut prime) = (2, true);
        while divisor * divisor <= candidate {
            prime &= candidate % divisor != 0;
            divisor += 1;
        }
        if prime {
            // The cube root in fixed point, 32 bits behind the point: the largest r with r³ ≤ candidate · 2⁹⁶.
            let (mut root, mut bit) = (0u128, 1u128 << 35);
            while bit > 0 {
                let next = root | bit;
                if next * next * next <= candidate << 96 {
                    root = next;
                }
                bit >>= 1;
            }
            constants[count] = root as u32;
            count += 1;
        }
        candidate += 1;
    }
    constants
}

/// A hash of what has been given so far.
pub struct Sha256 {
    state: [u32; 8],
    /// What does not fill a block yet.
    rest: Vec<u8>,
    bytes: u64,
}

impl Sha256 {
    /// Of nothing.
    pub fn new() -> Sha256 {
        Sha256 { state: START, rest: Vec::with_capacity(2 * BLOCK), bytes: 0 }
    }

    /// These bytes come next.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if !self.rest.is_empty() {
            let (taken, left) = bytes.split_at(bytes.len().min(BLOCK - self.rest.len()));
            self.rest.extend(taken);
            bytes = left;
            if self.rest.len() < BLOCK {
                return;
            }
            let block = std::mem::take(&mut self.rest);
            self.blocks(&block);
        }
        let (blocks, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        self.blocks(blocks);
        self.rest.extend(rest);
    }

    /// The hash.
    pub fn finish(mut self) -> [u8; 32] {
        let bits = self.bytes * 8;
        let mut last = std::mem::take(&mut self.rest);
        last.push(0x80);
        last.resize((last.len() + 8).next_multiple_of(BLOCK) - 8, 0);
        last.extend(bits.to_be_bytes());
        self.blocks(&last);
        let mut hash = [0; 32];
        for (bytes, word) in hash.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        hash
    }

    /// Works on whole blocks.
    fn blocks(&mut self, bytes: &[u8]) {
        for block in bytes.chunks_exact(BLOCK) {
            let mut words = [0u32; 64];
            for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
                *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
            }
            for i in 16..64 {
                let (a, b) = (words[i - 15], words[i - 2]);
                let a = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
                let b = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
                words[i] = words[i - 16].wrapping_add(a).wrapping_add(words[i - 7]).wrapping_add(b);
            }
            let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = self.state;
            for (constant, word) in ROUND.iter().zip(words) {
                let turned = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
                let chosen = (e & f) ^ (!e & g);
                let first = [turned, chosen, *constant, word].into_iter().fold(h, u32::wrapping_add);
                let turned = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
                let second = turned.wrapping_add((a & b) ^ (a & c) ^ (b & c));
                (h, g, f, e) = (g, f, e, d.wrapping_add(first));
                (d, c, b, a) = (c, b, a, first.wrapping_add(second));
            }
            for (word, change) in self.state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                *word = word.wrapping_add(change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(bytes);
        hash.finish()
    }

    fn hex(hash: [u8; 32]) -> String {
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hashes_of_the_standard() {
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(digest(b"")), of_nothing);
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(digest(b"abc")), of_abc);
        let of_two_blocks = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
        assert_eq!(hex(digest(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")), of_two_blocks);
        let of_a_million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(hex(digest(&vec![b'a'; 1_000_000])), of_a_million);
    }

    #[test]
    fn parts_may_end_anywhere() {
        let bytes: Vec<u8> = (0..300).map(|i| i as u8).collect();
        for first in 0..bytes.len() {
            let mut hash = Sha256::new();
            hash.update(&bytes[..first]);
            hash.update(&bytes[first..]);
            assert_eq!(hash.finish(), digest(&bytes));
        }
    }
}
