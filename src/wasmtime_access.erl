%% @private
%% Short looks into a guest that is idle or waits for its host.
%% Rule: a scheduler does not wait for somebody else who is inside; a dirty one does, then it is tried
%% again.
-module(wasmtime_access).

-export([retry/2]).

%% @doc What `Try' answers once it is not `dirty'. `Of' is native code's handle of an instance, or a
%% reference into one.
-spec retry(reference(), fun(() -> dirty | Result)) -> Result.
retry(Of, Try) ->
    case Try() of
        dirty ->
            ok = wasmtime_nif:access_wait(Of),
            retry(Of, Try);
        Result ->
            Result
    end.
