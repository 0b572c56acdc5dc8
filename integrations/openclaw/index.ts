/**
 * Sends session, turn type and the end of a session to the Rejoinder gateway.
 *
 * OpenClaw says what started a run to hooks, and asks for headers per request. The plugin keeps the
 * first until the second is asked for. Requests themselves go OpenClaw's own way.
 */
import { definePluginEntry } from "openclaw/plugin-sdk/plugin-entry";

const PROVIDER = "rejoinder";

/** Runs in which no person speaks: their requests are served and never train. */
const SIDE_TRIGGERS = new Set(["cron", "heartbeat", "manual", "memory", "overflow"]);

/** A process that serves for months must not remember every session it has seen. */
const MOST_SESSIONS = 1000;

/** OpenClaw waits two seconds for the ends of all sessions when it shuts down. */
const DONE_TIMEOUT_MS = 1500;

type TurnType = "main" | "side";

/** What started the latest run of each session. */
class Runs {
  readonly #types = new Map<string, TurnType>();

  begin(sessionId: string, trigger: string | undefined): void {
    this.#types.delete(sessionId);
    if (trigger === "user") this.#types.set(sessionId, "main");
    else if (trigger !== undefined && SIDE_TRIGGERS.has(trigger)) this.#types.set(sessionId, "side");
    const oldest = this.#types.keys().next();
    if (this.#types.size > MOST_SESSIONS && !oldest.done) this.#types.delete(oldest.value);
  }

  end(sessionId: string): void {
    this.#types.delete(sessionId);
  }

  /** Of a run that nobody has announced the gateway judges by its text. */
  headers(sessionId: string | undefined): Record<string, string> {
    if (sessionId === undefined) return {};
    const type = this.#types.get(sessionId);
    return { "X-Session-Id": sessionId, ...(type && { "X-Turn-Type": type }) };
  }
}

export default definePluginEntry({
  id: "rejoinder",
  name: "Rejoinder",
  description: "Names sessions and turn types to the Rejoinder gateway",
  register(api) {
    const runs = new Runs();

    api.registerProvider({
      id: PROVIDER,
      label: "Rejoinder",
      auth: [],
      resolveTransportTurnState: ({ sessionId }) => ({ headers: runs.headers(sessionId) }),
    });

    api.on("before_model_resolve", (_event, { sessionId, trigger }) => {
      if (sessionId !== undefined) runs.begin(sessionId, trigger);
    });

    api.on("session_end", async ({ sessionId, reason }) => {
      runs.end(sessionId);
      // These go on: after a restart, or with a summary in place of what was said.
      if (reason === "restart" || reason === "shutdown" || reason === "compaction") return;
      const provider = api.config.models?.providers?.[PROVIDER];
      if (provider?.baseUrl === undefined) return;
      try {
        const response = await fetch(`${provider.baseUrl}/sessions/done`, {
          method: "POST",
          headers: {
            "X-Session-Id": sessionId,
            "X-Session-Done": "true",
            ...(typeof provider.apiKey === "string" && {
              Authorization: `Bearer ${provider.apiKey}`,
            }),
          },
          signal: AbortSignal.timeout(DONE_TIMEOUT_MS),
        });
        if (!response.ok) api.logger.warn(`session end not taken: HTTP ${response.status}`);
      } catch (error) {
        // The gateway closes sessions by itself after a while; OpenClaw must not suffer.
        api.logger.warn(`session end not sent: ${String(error)}`);
      }
    });
  },
});
