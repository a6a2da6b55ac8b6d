import { DurableObject } from "cloudflare:workers";

/** The object of a key: bound as SEMEL. What is asked of the key is sent on, one request at a time. */
export class SemelObject extends DurableObject {
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
  webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): Promise<void>;
  webSocketClose(socket: WebSocket): void;
  webSocketError(socket: WebSocket): void;
}

/** Which keys there are: bound as REGISTRY. */
export class SemelRegistry extends DurableObject {}

/** The Worker. What it stands in front of is a setting: `SEMEL_UPSTREAM`, an origin, or the service that is bound as UPSTREAM. */
declare const upstream: {
  fetch(request: Request, env: object): Promise<Response>;
};
export default upstream;
