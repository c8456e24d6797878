//! Keys, and which of them a client asks for.

/// A key as POPULATE makes it, at most 15 bytes long.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; 15],
    len: u8,
}

impl Key {
    pub fn new(number: u64) -> Self {
        let mut bytes = [0; 15];
        bytes[..4].copy_from_slice(b"key:");
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        bytes[4..4 + digits.len()].copy_from_slice(digits);
        Key { bytes, len: 4 + digits.len() as u8 }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut draw = self.0;
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        draw ^ (draw >> 31)
    }

    /// From 0 to below 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Numbers below `count`, small ones far more often: Gray et al., "Quickly Generating
/// Billion-Record Synthetic Databases", as in YCSB.
pub struct Zipf {
    count: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub fn new(count: u64, theta: f64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (all, two) = (zeta(count), zeta(2));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - two / all);
        Zipf { count: count as f64, theta, alpha: 1.0 / (1.0 - theta), zeta: all, eta }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        let part = random.part();
        let scaled = part * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        (self.count * (self.eta * part - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

pub const KEYS: u64 = 1_000_000;

/// Keys to ask for, drawn beforehand and stored in a row.
pub fn stream(zipf: Option<&Zipf>, len: usize, seed: u64) -> Vec<Key> {
    let mut random = Random(seed);
    (0..len)
        .map(|_| {
            Key::new(match zipf {
                None => random.next() % KEYS,
                Some(zipf) => zipf.draw(&mut random),
            })
        })
        .collect()
}
