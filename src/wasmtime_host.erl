%% @private
%% Host functions: how they are run, and what the guest gets from those that fail.
%% Rule: whatever a host function does, the guest gets an answer.
-module(wasmtime_host).

-include("wasmtime_instance.hrl").

-export([handle/2, serve/3, answer/3]).

-define(MAX_ID, 16#FFFFFFFFFFFFFFFF).

%% @doc Serves a host call that came as a message to the instance's host, or to a process that it
%% was handed on to. One that is over, or was taken before, is not served again.
-spec handle(#wasmtime_instance{}, term()) -> ok | ignore.
handle(#wasmtime_instance{id = Id, ref = Inst0} = Inst,
       {wasmtime_host_call, Id, HostId, Key, Args})
  when is_integer(HostId), HostId >= 0, HostId =< ?MAX_ID ->
    case wasmtime_nif:host_claim(Inst0, HostId) of
        true -> wasmtime_nif:host_reply(Inst0, HostId, serve(Key, Args, Inst));
        false -> ok
    end;
handle(#wasmtime_instance{}, _) ->
    ignore.

%% @doc The answer of the function of that name.
-spec serve(term(), [term()], #wasmtime_instance{}) -> {ok, [term()]} | {error, binary()}.
serve(Key, Args, #wasmtime_instance{funs = Funs} = Inst) ->
    case Funs of
        #{Key := Fun} -> answer(Fun, Inst, Args);
        _ -> failed("is not among the imports", [])
    end.

%% @doc The answer of a function. Native code says which function it was, and checks the values.
-spec answer(fun((tuple(), [term()]) -> term()), #wasmtime_instance{}, [term()]) ->
          {ok, [term()]} | {error, binary()}.
answer(Fun, Inst, Args) ->
    try Fun(Inst, Args) of
        {ok, Values} = Reply when length(Values) >= 0 -> Reply;
        {error, Reason} -> returned(Reason);
        {wasmtime_import, Other} -> failed("has a type, and must return the list of its results, not ~0tp", [Other]);
        Other -> failed("returned neither {ok, Values} nor {error, Reason}: ~0tp", [Other])
    catch
        error:Reason -> failed("raised ~0tp", [Reason]);
        exit:Reason -> failed("exited with ~0tp", [Reason]);
        throw:Reason -> failed("threw ~0tp", [Reason])
    end.

%% A reason that is text is shown as it is. A long one is cut before it is looked at.
returned(Reason) when is_binary(Reason) ->
    Start = wasmtime_error:start(Reason),
    case unicode:characters_to_binary(Start) of
        Start -> failed("returned an error: ~ts", [Start]);
        _ -> failed("returned an error: ~0tp", [Start])
    end;
returned(Reason) ->
    failed("returned an error: ~0tp", [Reason]).

failed(Format, Args) ->
    {error, wasmtime_error:text(Format, Args)}.
