// Unpacks the columns that payload.rs packed.

function base64Bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function readPayload() {
  const element = document.getElementById("payload");
  const packed = base64Bytes(element.textContent.trim());
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  let at = 4 + length;
  const columns = {};
  for (const { name, code, count, planes } of head.columns) {
    columns[name] = joinPlanes(bytes, at, count, planes, code === "difference");
    at += count * planes;
  }
  head.columns = columns;
  return head;
}

// Joins byte planes. Returns a Uint32Array if the numbers fit, otherwise a Float64Array. If
// `difference` is set, the numbers are summed; the sums must have at most 53 bits.
function joinPlanes(bytes, at, count, planes, difference) {
  if (planes <= 4 && !difference) {
    const out = new Uint32Array(count);
    for (let plane = 0; plane < planes; plane++) {
      const from = at + plane * count, shift = 8 * plane;
      for (let i = 0; i < count; i++) out[i] |= bytes[from + i] << shift;
    }
    return out;
  }
  const out = new Float64Array(count);
  for (let plane = planes - 1; plane >= 0; plane--) {
    const from = at + plane * count;
    for (let i = 0; i < count; i++) out[i] = out[i] * 256 + bytes[from + i];
  }
  if (difference) {
    let sum = 0;
    for (let i = 0; i < count; i++) {
      const z = out[i];
      sum += z % 2 ? -(z + 1) / 2 : z / 2;
      out[i] = sum;
    }
  }
  return out;
}
