/** Names of channels, and a letter for each, used in the timeline, the filter and tables. */
import { oneLine } from "../format.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/**
 * @typedef {object} Channel
 * @property {string} id @property {string} agent @property {string} provider @property {string} model
 * @property {string} directory @property {number} requests @property {number} epoch
 * @property {"stateless"|"stateful"} mode @property {string} session @property {string} lost
 * @property {boolean} unanswered @property {string} error
 */

/** A to Z, then A1 … */
export function letter(index) {
  const round = Math.floor(index / LETTERS.length);
  return LETTERS[index % LETTERS.length] + (round || "");
}

/** @param {Channel} channel */
export const modelName = (channel) => oneLine(`${channel.provider}:${channel.model}`, 60);

/** @param {Channel} channel */
export function channelName(channel) {
  const folder = channel.directory ? ` · ${oneLine(channel.directory, 60)}` : "";
  return `${oneLine(channel.agent, 40)} · ${modelName(channel)}${folder}`;
}

/** Return channels by id, each with its letter and colour number. */
export function withLetters(channels) {
  return new Map(channels.map((channel, index) => [channel.id, { ...channel, letter: letter(index), hue: index % 6 }]));
}
