// Server-Sent Events over fetch, because EventSource sends no Authorization header.
import { eventStream } from "./api.js";

const kSilenceMs = 45000;  // the service writes a comment every 15 seconds

// Reads until the stream ends, or fails. `signal` closes it.
export async function readEvents(after, signal, { onOpen, onEvent }) {
  const silent = new AbortController();
  const body = await eventStream(after, AbortSignal.any([signal, silent.signal]));
  const parts = body.pipeThrough(new TextDecoderStream()).getReader();
  onOpen();
  let text = "", timer = null;
  try {
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(new Error("The stream was silent.")), kSilenceMs);
      const { done, value } = await parts.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const data = event.split("\n").find((line) => line.startsWith("data: "));
        if (data !== undefined) onEvent(JSON.parse(data.slice(6)));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}
