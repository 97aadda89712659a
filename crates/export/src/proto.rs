//! Encodes the parts of protobuf that traces and profiles need. Fields are appended to a buffer. A
//! message's length is filled in when the message is closed.

/// A buffer of encoded fields.
#[derive(Debug, Default)]
pub(crate) struct Proto {
    bytes: Vec<u8>,
}

/// An open message, as the offset where its content begins.
#[must_use]
pub(crate) struct Open(usize);

impl Proto {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends an integer, an enum or a boolean.
    pub fn uint(&mut self, field: u32, value: u64) {
        self.raw(u64::from(field << 3));
        self.raw(value);
    }

    /// Appends a signed integer in the encoding of `int64`.
    pub fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value as u64);
    }

    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.raw(u64::from(field << 3 | 1));
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub fn float(&mut self, field: u32, value: f32) {
        self.raw(u64::from(field << 3 | 5));
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends packed doubles.
    pub fn doubles(&mut self, field: u32, values: &[f64]) {
        self.raw(u64::from(field << 3 | 2));
        self.raw(size_of_val(values) as u64);
        values.iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    /// Appends a string, or an encoded message.
    pub fn blob(&mut self, field: u32, value: &[u8]) {
        self.raw(u64::from(field << 3 | 2));
        self.raw(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub fn text(&mut self, field: u32, value: &str) {
        self.blob(field, value.as_bytes());
    }

    /// Appends encoded fields.
    pub fn append(&mut self, fields: &[u8]) {
        self.bytes.extend_from_slice(fields);
    }

    /// Begins a message.
    pub fn open(&mut self, field: u32) -> Open {
        self.raw(u64::from(field << 3 | 2));
        self.bytes.push(0);
        Open(self.bytes.len())
    }

    /// Ends a message. Most messages are shorter than 128 bytes, so one byte was reserved for the
    /// length. The content of a longer message is moved.
    pub fn close(&mut self, open: Open) {
        let Open(start) = open;
        let length = self.bytes.len() - start;
        if length < 128 {
            self.bytes[start - 1] = length as u8;
            return;
        }
        let (mut encoded, mut count, mut rest) = ([0u8; 10], 0, length as u64);
        while rest >= 128 {
            encoded[count] = rest as u8 | 0x80;
            rest >>= 7;
            count += 1;
        }
        encoded[count] = rest as u8;
        self.bytes.splice(start - 1..start, encoded[..=count].iter().copied());
    }

    fn raw(&mut self, mut value: u64) {
        while value >= 128 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protobuf_defines() {
        let mut proto = Proto::default();
        proto.uint(1, 150);
        proto.int(2, -1);
        proto.text(16, "hi");
        let message = proto.open(3);
        proto.fixed64(1, 1);
        proto.close(message);
        let mut expected = vec![8, 0x96, 1, 16];
        expected.extend([0xff; 9]);
        expected.extend([1, 0x82, 1, 2, b'h', b'i', 26, 9, 9, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(proto.bytes(), expected);
    }

    #[test]
    fn floats_are_encoded_by_their_bytes() {
        let mut proto = Proto::default();
        proto.float(2, 1.0);
        proto.doubles(6, &[1.0, -2.0]);
        let one = [0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        let minus_two = [0, 0, 0, 0, 0, 0, 0, 0xc0];
        let expected = [&[0x15, 0, 0, 0x80, 0x3f, 0x32, 16][..], &one, &minus_two].concat();
        assert_eq!(proto.bytes(), expected);
    }

    #[test]
    fn long_messages_get_long_lengths() {
        for length in [127usize, 128, 300, 20_000] {
            let mut proto = Proto::default();
            let outer = proto.open(1);
            let inner = proto.open(2);
            proto.append(&vec![7; length]);
            proto.close(inner);
            proto.close(outer);
            let mut one = Proto::default();
            one.blob(2, &vec![7; length]);
            let mut two = Proto::default();
            two.blob(1, one.bytes());
            assert_eq!(proto.bytes(), two.bytes(), "{length}");
        }
    }
}
