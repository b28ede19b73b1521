// A page as people make them with the AI SDK: `useChat` as it comes, with the default address.
// What a person would do is on `window.chat`; what they would see is in the document.
import { useChat } from "@ai-sdk/react";
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { createRoot } from "react-dom/client";

const { id, resume, messages: before } = window.wanted;

function Part({ part }) {
  if (part.type === "text") return <span className="text">{part.text}</span>;
  if (part.type === "reasoning") return <em>{part.text}</em>;
  if (part.type === "dynamic-tool") return <code data-state={part.state}>{part.toolName}</code>;
  return null;
}

function Page() {
  const chat = useChat({
    id,
    resume,
    messages: before,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onData: (part) => window.data.push(part),
  });
  window.chat = chat;
  return (
    <main data-status={chat.status} data-error={chat.error?.message ?? ""}>
      {chat.messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} />
          ))}
        </article>
      ))}
    </main>
  );
}

window.data = [];
createRoot(document.getElementById("root")).render(<Page />);
