%% @private
%% What an instance is sent: checks, and the choice of a scheduler by size.
%% Rule: a message is taken whole or not at all.
-module(wasmtime_stream).

-include("wasmtime_badarg.hrl").
-include("wasmtime_instance.hrl").

-export([send/2, close/1]).

%% Larger messages go to a dirty scheduler: copying them takes longer than the way there.
-define(DIRTY_BYTES, 262144).

-spec send(tuple(), term()) -> ok | {error, wasmtime_error:t()}.
send(#wasmtime_instance{ref = Ref}, Data) when is_binary(Data) ->
    case byte_size(Data) > ?DIRTY_BYTES of
        true -> wasmtime_nif:stream_send_dirty(Ref, Data);
        false -> wasmtime_nif:stream_send(Ref, Data)
    end;
send(#wasmtime_instance{} = Inst, Data) when is_list(Data) ->
    try iolist_to_binary(Data) of
        Bin -> send(Inst, Bin)
    catch
        error:badarg -> not_iodata()
    end;
send(#wasmtime_instance{}, _) ->
    not_iodata();
send(_, _) ->
    ?BADARG(instance).

-spec close(tuple()) -> ok | {error, wasmtime_error:t()}.
close(#wasmtime_instance{ref = Ref}) -> wasmtime_nif:stream_close(Ref);
close(_) -> ?BADARG(instance).

not_iodata() ->
    {error, wasmtime_error:badarg(stream, <<"the message must be iodata">>)}.
