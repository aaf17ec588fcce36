//! Zip files member by member, sound or not: libraries refuse to write the ones that matter here.

use std::io::Write as _;

use flate2::Crc;
use flate2::write::DeflateEncoder;

/// A zip file being made.
#[derive(Debug, Default, Clone)]
pub(crate) struct Zip {
    members: Vec<(String, Vec<u8>, bool)>,
}

impl Zip {
    /// Adds a stored member; names may repeat, and may be anything.
    pub(crate) fn stored(mut self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.members.push((name.to_owned(), content.as_ref().to_vec(), false));
        self
    }

    /// Adds a deflated member.
    pub(crate) fn deflated(mut self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.members.push((name.to_owned(), content.as_ref().to_vec(), true));
        self
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, content, deflate) in &self.members {
            let mut crc = Crc::new();
            crc.update(content);
            let data = if *deflate { deflated(content) } else { content.clone() };
            let offset = u32::try_from(out.len()).unwrap().to_le_bytes();
            let common = [
                &[20, 0, 0, 0][..],
                &[if *deflate { 8 } else { 0 }, 0],
                &[0; 4],
                &crc.sum().to_le_bytes(),
                &u32::try_from(data.len()).unwrap().to_le_bytes(),
                &u32::try_from(content.len()).unwrap().to_le_bytes(),
                &u16::try_from(name.len()).unwrap().to_le_bytes(),
                &[0, 0],
            ]
            .concat();
            directory
                .extend([b"PK\x01\x02\x14\x00", &common[..], &[0; 10], &offset, name.as_bytes()].concat());
            out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), &data].concat());
        }
        let start = u32::try_from(out.len()).unwrap().to_le_bytes();
        let length = u32::try_from(directory.len()).unwrap().to_le_bytes();
        let count = u16::try_from(self.members.len()).unwrap().to_le_bytes();
        out.extend(directory);
        out.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &length, &start, &[0, 0]].concat());
        out
    }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
